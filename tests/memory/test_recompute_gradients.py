"""Recompute instead of keep: the same gradients, of every order."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nngrad as nn
import nngrad.functions as F
from nngrad.extend import Variable, functions_of
from nngrad.memory.plan import Forward, binomial_plan, by_blocks, in_order, partly, uniform_plan
from nngrad.memory.rebuild import rebuild
from tests.autodiff.test_properties import SETTINGS, Recipe, agree, draw_leaves, follow, recipes
from tests.rematerialising import (
    LAYERS,
    POLICIES,
    agree_as_one,
    chain,
    is_product,
    predicted,
    structure_alone,
    values_of,
)
from tests.slow import slow_but, slow_but_every

# ---------------------------------------------------------------- the same gradients

@pytest.mark.parametrize("name", slow_but(["sqrt", "five levels", "all but products"], POLICIES))
@pytest.mark.filterwarnings("ignore:MemoryBudget")
def test_gradients_are_those_without_a_policy(name: str) -> None:
    policy = POLICIES[name]
    loss, weights = chain(dtype="d")
    first = nn.grad(loss, weights)
    plain = values_of([*first, *nn.grad(F.add_n(*[F.sum(g * g) for g in first]), weights)])
    with structure_alone():
        first = nn.grad(loss, weights, recompute=policy)
        again = values_of([*first, *nn.grad(F.add_n(*[F.sum(g * g) for g in first]), weights, recompute=policy)])
    agree(again, plain, 1e-12)


def forced(outputs: list[Variable], leaves: list[Variable], kind: int) -> list[Variable]:
    """The gradients by one of many plans, whether or not it saves memory."""
    gradients = nn.grad(outputs, leaves, recompute=False)
    known = functions_of(outputs)
    emitted = [f for f in functions_of(gradients) if f not in set(known)]
    forward = Forward(in_order(outputs), outputs, emitted)
    dropped = frozenset(f for f in forward.droppable if kind % 3 or f.name not in ("tanh", "mul2"))
    cuts = [uniform_plan(2), uniform_plan(5), binomial_plan(1, 3), binomial_plan(2, 2), binomial_plan(3, 3),
            partly(uniform_plan(2), 0.6)]  # fmt: skip
    plans = [forward.plan(cut, dropped) for cut in cuts] + [by_blocks(known, dropped)]
    return rebuild(known, outputs, gradients, plans[kind % len(plans)]).gradients


@settings(SETTINGS, max_examples=10)
@given(recipes(), st.integers(0, 20), st.integers(0, 20), st.sampled_from([np.float64, np.float32]))
def test_any_plan_gives_the_same_gradients_on_random_graphs(
    recipe: Recipe, one: int, two: int, dtype: Any
) -> None:
    leaves = [Variable.from_numpy_array(x) for x in draw_leaves(recipe, dtype)]
    outputs = follow(recipe, leaves, ours=True)

    def both(kinds: tuple[int, int] | None) -> list[Any]:
        first = nn.grad(outputs, leaves) if kinds is None else forced(outputs, leaves, kinds[0])
        above = [g * g * 0.5 + g for g in first]
        second = nn.grad(above, leaves) if kinds is None else forced(above, leaves, kinds[1])
        return values_of([*first, *second])

    agree(both((one, two)), both(None), 1e-12 if dtype is np.float64 else 1e-6)


LAYER = {
    "dense": lambda h, w, other: F.affine(h, w),
    "transposed": lambda h, w, other: F.affine(other, F.transpose(w, (1, 0))),
    "convolution": lambda h, w, other: F.reshape(
        F.convolution(F.reshape(h, (4, 1, 4, 4)), F.reshape(w[:1, :3], (1, 1, 1, 3)), pad=(0, 1)), (16, 4)
    ),
    "tanh": lambda h, w, other: F.tanh(h),
    "softplus": lambda h, w, other: F.softplus(h),
    "leaky": lambda h, w, other: F.leaky_relu(h, 0.2),
    "centred": lambda h, w, other: h - F.mean(h, axis=0, keepdims=True),
    "scaled by sums": lambda h, w, other: h * F.tanh(F.sum(h, axis=1, keepdims=True)),
    "added": lambda h, w, other: h + other,
    "multiplied": lambda h, w, other: F.sin(h) * other,
    "halves": lambda h, w, other: F.concatenate(other[:, :2], h[:, 2:], axis=1),
}
"""Layers from (16, 4) to (16, 4): of the last value, one of two shared weights, and an earlier value."""

# Functions of (4, 4) and (4, 2) that do not read all of their inputs, beside what they are for `jax.grad`.
READS_LESS: dict[str, Any] = {
    "batch_solve": (lambda a, h: F.batch_solve(a, h), jnp.linalg.solve),
    "linear_solve": (lambda a, h: nn.linear_solve(a, h)[0], jnp.linalg.solve),
    "straight_through": (
        lambda a, h: F.straight_through(F.round(F.mean(h, axis=0, keepdims=True)), h),
        lambda a, h: h + jax.lax.stop_gradient(jnp.round(jnp.mean(h, axis=0, keepdims=True)) - h),
    ),
    "clip_grad_by_value": (
        lambda a, h: F.clip_grad_by_value(h[:1], np.full((4, 1), -9.0), np.full((4, 1), 9.0)),
        lambda a, h: jnp.broadcast_to(h[:1], h.shape),
    ),
    "sink": (lambda a, h: F.cos(F.sink(h, one_input_grad=False)) * h, lambda a, h: h),
    "optimization_barrier": (lambda a, h: F.optimization_barrier(h, a), lambda a, h: h),
}


@pytest.mark.parametrize("name", slow_but_every(3, READS_LESS))
def test_functions_that_do_not_read_all_inputs_are_computed_again(name: str) -> None:
    """What a function does not read says nothing of what it computes of the rest."""
    ours, theirs = READS_LESS[name]
    rng = np.random.default_rng(0)
    given = [rng.normal(size=(4, 4)) + 4 * np.eye(4), rng.normal(size=(4, 2))]
    leaves = [Variable.from_numpy_array(each) for each in given]
    h = leaves[1]
    for _ in range(3):
        h = F.tanh(3 * F.sin(ours(leaves[0], h)) + h @ np.eye(2))
    loss = F.sum(h * h)

    def by_jax_loss(a: Any, h: Any) -> Any:
        for _ in range(3):
            h = jnp.tanh(3 * jnp.sin(theirs(a, h)) + h)
        return jnp.sum(h * h)

    first = forced([loss], leaves, 13)
    assert any([f.name == "recomputed" for f in functions_of(first)])
    with jax.enable_x64(True):
        agree(values_of(first), jax.grad(by_jax_loss, (0, 1))(*given), 1e-10)
    penalty = [F.add_n(*[F.sum(g * g) for g in first])]
    agree(values_of(forced(penalty, leaves, 13)), values_of(nn.grad(penalty, leaves, recompute=False)), 1e-10)


Layers = list[tuple[str, int, int]]


def network(layers: Layers, dtype: Any) -> tuple[Variable, list[Variable]]:
    """A loss of the last value and of one in the middle, and the leaves."""
    rng = np.random.default_rng(len(layers))
    leaves = [Variable.from_numpy_array(rng.normal(0, s, n).astype(dtype), need_grad=True)
              for n, s in (((16, 4), 1.0), ((4, 4), 0.5), ((4, 4), 0.5))]
    values = leaves[:1]
    for name, weight, back in layers:
        values.append(LAYER[name](values[-1], leaves[1 + weight], values[max(0, len(values) - 1 - back)]))
    return F.mean(values[-1] ** 2) + F.mean(F.sin(values[len(values) // 2])), leaves


@pytest.mark.slow
@settings(SETTINGS, max_examples=5)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(LAYER)), st.integers(0, 1), st.integers(1, 4)), min_size=3, max_size=14),
    st.sampled_from([False, "sqrt", "auto", nn.Segments(2), POLICIES["all but products"]]),
    st.sampled_from(["sqrt", "auto", nn.Segments(2), POLICIES["everything"]]),
    st.sampled_from([np.float64, np.float32]),
)
def test_any_policy_gives_the_same_gradients_on_random_networks(
    layers: Layers, first: Any, second: Any, dtype: Any
) -> None:
    loss, leaves = network(layers, dtype)

    def both(once: Any, twice: Any) -> tuple[list[Variable], list[Variable], Variable]:
        gradients = nn.grad(loss, leaves, recompute=once)
        penalty = F.add_n(*[F.sum(g**2) for g in gradients])
        return gradients, nn.grad(penalty, leaves, recompute=twice), penalty

    with structure_alone():
        plain, again, half = both(False, False), both(first, second), both(first, False)
    for i in (0, 1):
        agree_as_one(values_of(again[i]), values_of(plain[i]), 1e-12 if dtype is np.float64 else 1e-6)
    assert predicted([loss, *again[0]]) <= predicted([loss, *plain[0]])
    assert predicted([again[2], *again[1]]) <= predicted([half[2], *half[1]])


def test_gradients_stop_where_they_did() -> None:
    def second(policy: Any) -> list[Any]:
        loss, weights = chain(dtype="d")
        functions_of([loss])[LAYERS].outputs[0].need_grad = False
        first = nn.grad(loss, weights, recompute=policy)
        return values_of([*first, *nn.grad(F.sum(first[-1] ** 2), weights, recompute=False)])

    agree(second("sqrt"), second(None), 1e-12)


# ---------------------------------------------------------------- further differentiation


def test_a_third_gradient_of_rematerialised_ones_is_right() -> None:
    def third(*policies: Any) -> list[Any]:
        loss, weights = chain(6, dtype="d")
        x = next(f.inputs[0] for f in functions_of([loss]) if is_product(f))
        for policy in policies[:2]:
            (gx,) = nn.grad(loss, [x], recompute=policy)
            loss = F.sum(gx**2)
        return values_of(nn.grad(loss, weights, recompute=policies[2]))

    plain = third(False, False, False)
    with structure_alone():
        for policy in ("sqrt", nn.Segments(3), is_product):
            agree(third(policy, policy, policy), plain, 1e-11)
        for mixed in (("sqrt", False, False), ("sqrt", False, "sqrt"), ("sqrt", nn.Segments(2), False)):
            agree(third(*mixed), plain, 1e-11)
