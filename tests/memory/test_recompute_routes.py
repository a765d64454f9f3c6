"""Recompute instead of keep, on every route: backward, training steps, JAX functions, several devices; with effects."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad.graph import Variable, functions_of
from nngrad.graph.leaf import arrays_of
from nngrad.memory.trials import temporaries
from tests.autodiff.test_properties import agree
from tests.processes import printed_by
from tests.rematerialising import BATCH, WIDTH, chain, counted_compilations, products, structure_alone, values_of

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
    assert [b - a for a, b in itertools.pairwise(sizes)] == [1, 0, 1, 0]
    assert nn.executables.info().misses == before.misses, "what was compiled to decide is what runs"


def test_what_was_compiled_to_decide_runs_and_is_not_compiled_again() -> None:
    loss, weights = chain(10)
    outputs = [loss, *nn.grad(loss, weights, recompute="sqrt")]
    misses = nn.executables.info().misses
    with counted_compilations() as count:
        nn.forward_all(outputs)
        values = [y.d for y in outputs]
    assert count() == 0 and nn.executables.info().misses == misses
    agree(values, values_of(outputs), 1e-5)


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


def test_a_marked_graph_built_anew_compiles_once() -> None:
    def step() -> None:
        loss, weights = chain(6, mark=lambda i: i % 2 == 0)
        loss.forward()
        loss.backward()
        assert weights[0].g.any()

    step()
    misses = nn.executables.info().misses
    step()
    assert nn.executables.info().misses == misses


def test_training_steps_recompute() -> None:
    def losses(policy: Any) -> tuple[list[float], int]:
        loss, weights = chain()
        step = nn.train_step(loss, weights, S.Sgd(lr=1e-3), recompute=policy)
        return [float(step()) for _ in range(3)], products_of(step)

    def products_of(step: Any) -> int:
        solver, parameters = step._solver, tuple([p.cell.raw() for p in step._variables])
        arguments = solver._rate, (), arrays_of(step._live)
        return products(step._update._executable.function.lower(parameters, solver._flat_state(), arguments).compile())

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


SHARDED = """
import jax, numpy as np, nngrad as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tests.processes import printed_by
from tests.rematerialising import chain, products, temporaries
from nngrad.graph import leaves_of
from tests.autodiff.test_properties import agree

loss, weights = chain()
(x,) = [leaf for leaf in leaves_of([loss]) if not leaf.need_grad]
mesh = Mesh(np.array(jax.devices()), ("batch",))
rows, whole = NamedSharding(mesh, PartitionSpec("batch")), NamedSharding(mesh, PartitionSpec())
found = []
for policy in (None, "sqrt"):
    f = nn.to_jax([loss, *nn.grad(loss, weights, recompute=policy)], x)
    jitted = jax.jit(f, in_shardings=rows, out_shardings=whole)
    executable = jitted.lower(jax.ShapeDtypeStruct(x.shape, x.dtype)).compile()
    found.append((executable(jax.device_put(x.d, rows)), temporaries(executable), products(executable)))
(plain, most, few), (again, least, many) = found
agree(again, plain, 1e-5)
assert len(jax.devices()) == 2 and least < 0.7 * most and many > few, found[1:]
"""


@pytest.mark.slow  # another process
def test_it_saves_memory_on_each_of_several_devices() -> None:
    printed_by(2, ("-c", SHARDED))


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


@pytest.mark.slow
def test_masks_and_statistics_at_order_two_on_every_route() -> None:
    def results(policy: Any, route: str) -> list[np.ndarray[Any, Any]]:
        nn.seed(5)
        rng = np.random.default_rng(2)
        x = Variable.from_numpy_array(rng.normal(size=(32, 8)).astype("f"))
        weights = [Variable.from_numpy_array(rng.normal(0, 0.4, (8, 8)).astype("f"), need_grad=True) for _ in range(4)]
        running = [Variable.from_numpy_array(np.full((1, 8), v, "f")) for _ in weights for v in (0.0, 1.0)]
        h = x
        for i, w in enumerate(weights):
            z = F.batch_normalization(F.affine(h, w), None, None, *running[2 * i : 2 * i + 2])
            h = F.dropout(F.tanh(z), 0.3, seed=i)
        (slope,) = nn.grad(F.sum(h**2), [x], recompute=policy)
        loss = F.mean(F.sum(slope**2, axis=1)) + F.mean(h)
        gradients = nn.grad(loss, weights, recompute=policy) if route == "compile" else [slope]
        step = {
            "backward": lambda: lambda: (loss.forward(), loss.backward(recompute=policy)),
            "train_step": lambda: nn.train_step(loss, weights, S.Sgd(lr=1e-2), recompute=policy),
            "compile": lambda: nn.compile([loss, *gradients]),
        }[route]()
        if policy:
            assert [f for f in functions_of(gradients) if f.name == "optimization_barrier"]
        got = [step() for _ in range(2)][-1]
        kept = [w.d if route == "train_step" else w.g for w in weights] if route != "compile" else got[1:]
        return [*[np.array(a) for a in kept], *[r.d.copy() for r in running]]

    for route in ("backward", "train_step", "compile"):
        with structure_alone():
            again, plain = results("sqrt", route), results(False, route)
        assert not np.allclose(plain[4], 0), "the running mean was to change"
        agree(again, plain, 1e-4)


def test_what_is_retained_does_not_make_another_program_of_the_one_that_was_tried() -> None:
    nn.executables.clear()
    loss, _ = chain(9)
    loss.forward()
    loss.backward(recompute="sqrt", retain_grad=True)
    programs = [program for program in nn.executables._entries if program != loss.parent.plan.program]
    assert programs
    assert all([temporaries.find(program) is not None for program in programs])
