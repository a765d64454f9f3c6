"""Loops that go back segment by segment: derivatives, and what is kept as compiled."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import nngrad as nn
import nngrad.functions as F
from nngrad.autodiff.walk import Grad
from nngrad.graph import Switched, Variable, contained
from tests.exact import exactly
from tests.leaves import leaf

RNG = np.random.default_rng(0)


@contained
def gradients(value: Variable, leaves: list[Variable], sizes: tuple[int, ...]) -> list[Variable]:
    """The gradients, where loops are cut so."""
    Switched(segments=lambda f: sizes if f.op.steps_to_cut(f) > sizes[0] else ()).from_now_on()
    return Grad()([value], leaves, [None])


def loss(m: Any, scan: Any, x: Any, w: Any, c: Any, reverse: bool) -> Any:
    """Of a loop with two carries, one of them an integer, and two stacks."""
    def step(carry: Any, x: Any) -> Any:
        i, h = carry
        y = m.tanh(h @ w + x)
        return (i + 1, y), (h * y, m.sin(x))
    (_, last), (a, b) = scan(step, (np.int32(0), c), x, reverse=reverse)
    return m.sum(last**2) + m.sum(m.sin(a)) + m.sum(b * b * b)


@settings(max_examples=3, deadline=None)
@given(
    st.integers(2, 11), st.booleans(), st.integers(1, 2),
    st.lists(st.integers(1, 6), min_size=1, max_size=3).map(lambda s: tuple(sorted(set(s), reverse=True))),
)  # fmt: skip
def test_derivatives_are_those_of_the_loop(steps: int, reverse: bool, order: int, sizes: tuple[int, ...]) -> None:
    arrays = [RNG.standard_normal(shape) for shape in ((steps, 2, 3), (3, 3), (2, 3))]
    leaves = [leaf(a) for a in arrays]
    found: Any = loss(F, F.scan, *leaves, reverse)

    def expected(*args: Any) -> Any:
        return loss(jnp, lax.scan, *args, reverse)

    for _ in range(order):
        found = F.add_n(*[F.sum(g**k) for k, g in enumerate(gradients(found, leaves, sizes), 1)])

        def expected(*args: Any, below: Any = expected) -> Any:
            return sum([jnp.sum(g**k) for k, g in enumerate(jax.grad(below, (0, 1, 2))(*args), 1)])

    np.testing.assert_allclose(found.d, exactly(expected, *arrays), rtol=1e-9)


def test_carries_that_are_equal_are_one_and_so_are_those_before_segments() -> None:
    arrays = [RNG.standard_normal(shape) for shape in ((7, 1, 2), (2, 2), (1, 2))]
    leaves = [leaf(a) for a in arrays]

    def twice(m: Any, scan: Any, x: Any, w: Any, c: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            a, b = carry
            return (m.tanh(a @ w + x), m.tanh(b @ w + x)), a * b
        (a, b), products = scan(step, (c, c), x)
        return m.sum(a * b * b) + m.sum(products)

    found = gradients(twice(F, F.scan, *leaves), leaves, (3,))
    (second,) = nn.grad([F.add_n(*[F.sum(F.sin(g)) for g in found])], [leaves[0]])
    gradient = jax.grad(lambda *args: twice(jnp, lax.scan, *args), (0, 1, 2))
    expected = exactly(jax.grad(lambda *args: sum([jnp.sum(jnp.sin(g)) for g in gradient(*args)])), *arrays)
    np.testing.assert_allclose(second.d, expected, rtol=1e-9)


@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_of_some_of_the_steps(reverse: bool) -> None:
    """Whole segments, or the steps beside them, of which none is asked for anything."""
    x = leaf(RNG.standard_normal((5, 2)))
    _, ys = F.scan(lambda h, s: (F.tanh(h + s), F.sin(s)), leaf(np.ones(2)), x, reverse=reverse)
    graphs = [gradients(F.sum(F.sin(ys[i : i + 1])), [x], (3,))[0] for i in range(5)]
    nn.forward_all(graphs)
    for i, gx in enumerate(graphs):
        expected = np.zeros((5, 2))
        expected[i] = np.cos(np.sin(x.d[i])) * np.cos(x.d[i])
        np.testing.assert_allclose(gx.d, expected, rtol=1e-12, atol=1e-15)


# ---------------------------------------------------------------- memory


def recurrence(steps: int) -> tuple[Variable, list[Variable]]:
    """The loss of a loop that is given nothing at its steps, and its leaves."""
    c, w = Variable((64, 16), need_grad=True), Variable((16, 16), need_grad=True)
    h, _ = F.scan(lambda h, _: (F.tanh(h @ w) + h * 0.5, None), c, None, length=steps)
    return F.sum(h**2), [c, w]


def taken(steps: int, policy: Any, order: int = 1) -> float:
    """Bytes of temporaries as compiled, in units of one carry."""
    value, leaves = recurrence(steps)
    found = nn.grad(value, leaves, recompute=policy)
    if order == 2:
        found = nn.grad(F.sum(found[0] ** 2) + value, leaves, recompute=policy)
    report = nn.memory_report([value, *found])
    assert report.compiled is not None
    assert 0.7 < report.compiled / report.peak < 1.5 or policy is None
    return report.compiled / (64 * 16 * 4)


@pytest.mark.parametrize("order", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_sqrt_takes_the_square_root_of_the_steps(order: int) -> None:
    few, many = (taken(steps, "sqrt", order) for steps in (64, 256))
    assert many < 2.2 * few < 0.25 * taken(256, None, order)


def test_a_budget_is_kept_to_and_auto_cuts_a_loop() -> None:
    nbytes = 100 * 64 * 16 * 4
    plain = taken(256, None)
    assert taken(256, nn.MemoryBudget(nbytes)) <= 100 < plain
    assert taken(256, "auto") < 0.2 * plain
