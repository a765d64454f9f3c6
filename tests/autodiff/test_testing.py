"""The checker is checked: planted wrong rules must be caught, at the order at which they are wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import nngrad as nn
import nngrad.functions as F
from backward_registry import backward
from nngrad.graph import Variable, op
from tests.oracle import check
from tests.together import Test, at_once

X = np.array([0.3, -0.7, 1.1])

Rule = Callable[[nn.Function, Variable], Any]


def planted(rule: Rule) -> Any:
    """tanh with a rule of one's own."""

    @op(elementwise=True, diagonal=True)
    def hyperbolic(x, /):
        return lax.tanh(x)

    backward(hyperbolic)(rule)
    return hyperbolic


def right(f: nn.Function, gy: Variable) -> Variable:
    """dy/dx = 1 - y^2"""
    (y,) = f.outputs
    return gy * (1 - y * y)


def wrong_sign(f: nn.Function, gy: Variable) -> Variable:
    """1 + y^2"""
    (y,) = f.outputs
    return gy * (1 + y * y)


def half_the_input(f: nn.Function, gy: Variable) -> Variable:
    """Of the input in place of the output."""
    (x,) = f.inputs
    return gy * (1 - x * x)


def drops_the_gradient(f: nn.Function, gy: Variable) -> Variable:
    """Right only where the gradient that comes in is 1."""
    (y,) = f.outputs
    return 1 - y * y


def frozen(f: nn.Function, gy: Variable) -> Variable:
    """Right in value, but it holds y fixed."""
    y = f.outputs[0].get_unlinked_variable(need_grad=False)
    return gy * (1 - y * y)


def frozen_gradient(f: nn.Function, gy: Variable) -> Variable:
    """Right in value, but it holds what comes in fixed."""
    (y,) = f.outputs
    return gy.get_unlinked_variable(need_grad=False) * (1 - y * y)


def constant(f: nn.Function, gy: Variable) -> Variable:
    """Right in value, from numbers."""
    return gy * Variable.from_numpy_array(1 - np.tanh(X) ** 2)


@op(elementwise=True, diagonal=True)
def flawed_square(x, /):
    """tanh(x)^2, with a wrong rule."""
    return lax.tanh(x) * lax.tanh(x)


@backward(flawed_square)
def _flawed_square_backward(f: nn.Function, gy: Variable) -> Variable:
    y = F.tanh(f.inputs[0])
    return gy * (2 * y * (1 + y * y))


@op(elementwise=True, diagonal=True)
def tanh_squared(x, /):
    """tanh(x)^2, with a rule that is right, but calls the flawed one."""
    return lax.tanh(x) * lax.tanh(x)


@backward(tanh_squared)
def _tanh_squared_backward(f: nn.Function, gy: Variable) -> Variable:
    (x,) = f.inputs
    return gy * (2 * F.tanh(x) * (1 - flawed_square(x)))


def right_once(f: nn.Function, gy: Variable) -> Variable:
    """1 - y^2 from an op with a wrong rule."""
    return gy * (1 - flawed_square(f.inputs[0]))


def right_twice(f: nn.Function, gy: Variable) -> Variable:
    """1 - y^2 from an op whose own rule is right once."""
    return gy * (1 - tanh_squared(f.inputs[0]))


def test_the_right_rule_passes() -> None:
    check(planted(right), jnp.tanh, [X], 3)


@pytest.mark.parametrize(("rule", "order"), [
    (wrong_sign, 1), (half_the_input, 1), (drops_the_gradient, 1), (frozen, 2), (frozen_gradient, 3), (constant, 2),
    (right_once, 2), (right_twice, 3),
])
def test_a_wrong_rule_is_caught(rule: Rule, order: int) -> None:
    check(planted(rule), jnp.tanh, [X], order - 1)
    with pytest.raises(AssertionError, match=f"order {order}"):
        check(planted(rule), jnp.tanh, [X], 3)


def test_one_of_two_gradients_swapped_is_caught() -> None:
    @op(elementwise=True, broadcasts=True)
    def product(a, b, /):
        return lax.mul(a, b)

    @backward(product)
    def product_backward(f: nn.Function, gy: Variable) -> Any:
        a, b = f.inputs
        return gy * a, gy * b

    with pytest.raises(AssertionError, match="order 1, result"):
        check(product, jnp.multiply, [X, X + 1], 2)


def test_a_rule_that_is_wrong_where_the_gradient_is_small_is_caught() -> None:
    def slightly_wrong(f: nn.Function, gy: Variable) -> Variable:
        (y,) = f.outputs
        return gy * (1 - y * y) * (1 + 1e-7)

    with pytest.raises(AssertionError, match="order 1"):
        check(planted(slightly_wrong), jnp.tanh, [X], 1)


# ---------------------------------------------------------------- tests that are made of others


@pytest.mark.xfail(raises=AssertionError, strict=True)
@at_once
@pytest.mark.parametrize("scale", [2, 3])
def test_of_those_that_are_compiled_together_one_that_is_wrong_fails(scale: int) -> Test:
    (found,) = yield (F.sin(Variable.from_numpy_array(X)),)
    np.testing.assert_allclose(found, scale * np.sin(X))
