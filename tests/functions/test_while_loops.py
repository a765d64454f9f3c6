"""Loops that go on as long as a condition holds: against `jax.lax.while_loop`, forward and with a bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable
from tests.together import Check, compared, together

A, X = np.array(2.0), np.array([1.0, 5.0])


def ours(a: Any, x: Any, bound: int | None = None) -> Any:
    """Newton's steps to the square roots of x + a, and how many there were."""
    def goes_on(carry: Any) -> Any:
        return F.sum((carry[1] ** 2 - x - a) ** 2) > 1e-3

    def step(carry: Any) -> Any:
        i, y = carry
        return i + 1, 0.5 * (y + (x + a) / y)

    return F.while_loop(goes_on, step, (np.int32(0), x * 0.5 + a), bound)


def theirs(a: Any, x: Any) -> Any:
    """The same in JAX."""
    def goes_on(carry: Any) -> Any:
        return jnp.sum((carry[1] ** 2 - x - a) ** 2) > 1e-3

    def step(carry: Any) -> Any:
        i, y = carry
        return i + 1, 0.5 * (y + (x + a) / y)

    return lax.while_loop(goes_on, step, (np.int32(0), x * 0.5 + a))


with jax.enable_x64(True):
    STEPS = int(theirs(A, X)[0])


def unrolled(a: Any, x: Any) -> Any:
    """The same in JAX, for as many steps as it takes, so that it can be differentiated in reverse."""
    y = x * 0.5 + a
    for _ in range(STEPS):
        y = 0.5 * (y + (x + a) / y)
    return jnp.int32(STEPS), y


def test_forward_to_order_3() -> None:
    a, x = (Variable.from_numpy_array(each) for each in (A, X))
    count, y = ours(a, x)
    with jax.enable_x64(True):
        arrays = jnp.asarray(A), jnp.asarray(X)
        h: Callable[..., Any] = theirs
        assert count.d == STEPS > 1
        h = lambda *xs: theirs(*xs)[1]  # noqa: E731
        for _ in range(3):
            (y,) = nn.jvp(y, [a, x], [1.0, X])
            h = along(h, (jnp.asarray(1.0), arrays[1]))
            np.testing.assert_allclose(y.d, h(*arrays), rtol=1e-9)


def along(h: Callable[..., Any], vs: Any) -> Callable[..., Any]:
    """The derivative of a function for JAX along a direction."""
    return lambda *xs: jax.jvp(h, xs, vs)[1]


@pytest.mark.parametrize("bound", [8, 12])
@together
def test_with_a_bound_in_reverse_to_order_2(bound: int) -> Check:
    yield from compared(lambda a, x: ours(a, x, bound), unrolled, [A, X], 2)


def test_without_a_bound_a_gradient_says_what_to_give() -> None:
    x = Variable.from_numpy_array(X)
    with pytest.raises(ValueError, match=r"cannot differentiate while_loop in reverse mode.*bound="):
        nn.grad(F.sum(F.while_loop(lambda y: F.sum(y) < 100, lambda y: y * 2, x)), x)


def test_nothing_is_computed_past_the_end() -> None:
    """Where a step past the end would divide by zero."""
    x = Variable.from_numpy_array(np.array(3.0))
    y = F.while_loop(lambda c: c[0] > 0, lambda c: (c[0] - 1, c[1] / c[0]), (x, x), bound=6)[1]
    np.testing.assert_allclose(y.d, 0.5)
    assert np.isfinite(nn.grad(y, x)[0].d)


V = Variable((2,))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: F.while_loop(lambda y: y > 0, lambda y: y, V), ValueError,
         r"cond_fun must return a scalar, got shape \(2,\)"),
    ],
)  # fmt: skip
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_bisection_has_no_forward_mode() -> None:
    def step(ends: Any) -> Any:
        middle = (ends[0] + ends[1]) / 2
        below = middle**3 + middle < a
        return F.where(below, middle, ends[0]), F.where(below, ends[1], middle)

    a = Variable.from_numpy_array(A)
    y, _ = F.while_loop(lambda ends: ends[1] - ends[0] > 1e-9, step, (np.float64(0), a))
    with pytest.raises(ValueError, match="only selects values by comparisons"):
        nn.jvp(y, a, np.float64(1))
