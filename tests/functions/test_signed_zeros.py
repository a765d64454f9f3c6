"""The sign of a zero that was written down survives: in graphs, in opened functions, and as a factor in gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.jax as nj

X = np.array([1.0, -2.0], np.float32)
Transform = Callable[[Callable[[Any], Any]], Callable[[Any], Any]]


def angle(zero: Any, x: Any) -> Any:
    """pi or -pi: the sign of a zero, as a number."""
    return jnp.arctan2(jnp.broadcast_to(zero, x.shape), -jnp.ones_like(x))


def values(x: Any) -> list[Any]:
    return [
        angle(-0.0, x), angle(0.0, x), angle(x * x * -0.0, x), angle(x * x * 0.0, x), jnp.copysign(x, -0.0),
        jnp.copysign(x, 0.0), 1 / (x * x * -0.0), jnp.sign(1 / jnp.where(x > 0, -0.0, 0.0)),
        angle(jnp.where(x > 5, x, -0.0) + -0.0, x), angle(-(x * x * 0.0), x), angle(jnp.full(2, -0.0) * 2, x),
    ]  # fmt: skip


def with_gradients(d: Transform) -> Callable[[Any], list[Any]]:
    """Gradients with zeros of either sign in what is differentiated, and gradients whose own zeros have a sign."""
    def function(x: Any) -> list[Any]:
        return [
            d(lambda x: x * angle(-0.0, x))(x), d(lambda x: x**2 * angle(x * x * -0.0, x))(x),
            d(d(lambda x: x**3 * jnp.copysign(1.0, -0.0)))(x), angle(d(lambda x: x * -0.0)(x), x),
            angle(d(lambda x: x * 0.0)(x), x), angle(d(lambda x: x * -0.0)(x) + -0.0, x),
            angle(d(lambda x: x * x * -0.0)(x), x), angle(d(d(lambda x: x * x * -0.0))(x), x),
        ]  # fmt: skip
    return function


def summed(gradient: Any) -> Transform:
    return lambda f: gradient(lambda x: jnp.sum(f(x)))


def test_opened_functions() -> None:
    opened = nn.from_jax(lambda x: jnp.stack(values(x)))
    np.testing.assert_array_equal(opened(nn.Variable.from_numpy_array(X)).d, jax.jit(values)(X))


def test_gradients_as_jax_has_them() -> None:
    found = jax.jit(with_gradients(summed(nj.grad)))(X)
    np.testing.assert_allclose(found, jax.jit(with_gradients(summed(jax.grad)))(X), rtol=1e-6)


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_graphs_that_differ_in_the_sign_of_a_zero_are_different(zero: float) -> None:
    x = nn.Variable.from_numpy_array(X, need_grad=True)
    wanted = np.copysign(np.float32(np.pi), zero)
    square = x**2
    for made in (F.constant(zero, (2,)), square * zero, F.linear_combination(square, coefficients=(zero,)),
                 -(square * -zero)):  # fmt: skip
        (g,) = nn.grad(F.sum(x * F.atan2(made, F.constant(-1.0, (2,)))), x)
        np.testing.assert_allclose(g.d, [wanted, wanted], rtol=1e-6)
    (g,) = nn.grad(F.sum(x * zero), x)
    assert np.signbit(g.d).tolist() == [np.signbit(zero)] * 2
