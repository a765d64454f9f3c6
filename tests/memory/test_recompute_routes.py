"""Recompute instead of keep, on every route: backward, training steps, JAX functions, several devices; with effects."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad.extend import Variable, arrays_of, functions_of
from tests.autodiff.test_properties import agree
from tests.rematerialising import BATCH, WIDTH, chain, counted_compilations, products, structure_alone

# ---------------------------------------------------------------- every route

def test_backward_recomputes_and_shares_executables() -> None:
    nn.executables.clear()

    def gradients(policy: Any) -> list[np.ndarray[Any, Any]]:
        loss, weights = chain(9)
        loss.forward()
        loss.backward(recompute=policy)
        return [w.g.copy() for w in weights]

    plain = gradients(None)
    before = nn.executables.info()
    sizes = [before.size]
    for policy in ("sqrt", "sqrt", nn.Segments(2), None):
        agree(gradients(policy), plain, 1e-5)
        sizes.append(nn.executables.info().size)
    assert [b > a for a, b in itertools.pairwise(sizes)] == [True, False, True, False]
    info = nn.executables.info()
    assert info.misses - before.misses == info.size - before.size, "what was compiled to decide is what runs"


def test_a_loop_that_builds_its_graph_anew_asks_the_compiler_once() -> None:
    def step() -> None:
        loss, weights = chain(11)
        nn.forward_all([loss, *nn.grad(loss, weights, recompute="sqrt")])
        assert np.isfinite(loss.d)

    for _ in range(2):  # quickly, and at its best
        step()
    with counted_compilations() as count:
        step()
    assert count() == 0


def test_training_steps_recompute() -> None:
    def losses(policy: Any) -> tuple[list[float], int]:
        loss, weights = chain()
        step = nn.train_step(loss, weights, S.Sgd(lr=1e-3), recompute=policy)
        return [float(step()) for _ in range(3)], products_of(step)

    def products_of(step: Any) -> int:
        solver, parameters = step._solver, tuple([p.cell.raw() for p in step._variables])
        arguments = solver._rate, (), arrays_of(step._live)
        return products(step._update._executable.function.lower(solver._flat_state(), parameters, arguments).compile())

    (plain, count), (again, more) = losses(None), losses("sqrt")
    np.testing.assert_allclose(again, plain, rtol=1e-5)
    assert more > count


def test_a_jax_function_of_it_can_be_transformed() -> None:
    loss, weights = chain(6)
    plain, again = (nn.grad(loss, weights, recompute=p) for p in (None, "sqrt"))
    f, g = nn.to_jax(plain[0], weights[0]), nn.to_jax(again[0], weights[0])
    w = weights[0].d
    agree([jax.jit(g)(w)], [jax.jit(f)(w)], 1e-5)
    agree([jax.grad(lambda a: g(a).sum())(w)], [jax.grad(lambda a: f(a).sum())(w)], 1e-4)
    agree([jax.vmap(g)(np.stack([w, w]))], [jax.vmap(f)(np.stack([w, w]))], 1e-5)


def test_hooks_see_the_plain_gradient() -> None:
    loss, weights = chain(9)
    seen: list[str] = []
    loss.forward()
    loss.backward(recompute="sqrt", function_post_hook=lambda f: seen.append(f.name))
    assert seen and "optimization_barrier" not in seen
    assert weights[0].g.any()


# ---------------------------------------------------------------- masks and statistics

def test_random_functions_have_the_same_mask() -> None:
    rng = np.random.default_rng(3)
    x = Variable.from_numpy_array(rng.normal(size=(BATCH, WIDTH)))
    weights = [Variable.from_numpy_array(rng.normal(0, 0.3, (WIDTH, WIDTH)), need_grad=True) for _ in range(8)]
    h = x
    for w in weights:
        h = F.dropout(F.tanh(F.affine(h, w)), 0.4)
    loss = F.sum(h**2)

    def both_orders(policy: Any) -> list[Variable]:
        first = nn.grad(loss, weights, recompute=policy)
        (slope,) = nn.grad(loss, [x], recompute=policy)
        return [*first, *nn.grad(F.sum(slope**2), weights, recompute=policy)]

    with structure_alone():
        plain, again = both_orders(False), both_orders("sqrt")
    assert [f for f in functions_of(again) if f.name == "optimization_barrier"]
    for _ in range(2):
        results = nn.compile([*plain, *again])()  # one draw of keys for both
        agree(results[16:], results[:16], 1e-12)


def test_batch_statistics_are_updated_once() -> None:
    def statistics(policy: Any) -> list[np.ndarray[Any, Any]]:
        nn.clear_parameters()
        nn.seed(5)
        h = Variable.from_numpy_array(np.random.default_rng(2).normal(size=(32, 8)).astype("f"))
        for i in range(8):
            h = F.tanh(PF.batch_normalization(PF.affine(h, 8, name=f"a{i}"), axes=[1], name=f"b{i}"))
        loss = F.sum(h**2)
        for _ in range(2):
            loss.forward()
            loss.backward(recompute=policy)
        values = [p.d.copy() for p in nn.get_parameters(grad_only=False).values()]
        return [*values, *[p.g.copy() for p in nn.get_parameters().values()]]

    with structure_alone():
        agree(statistics("sqrt"), statistics(None), 1e-5)
    nn.clear_parameters()
