"""Equal functions of a graph, which the reverse pass takes for one."""

from __future__ import annotations

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable
from tests.oracle import by_jax


def test_equal_functions_of_a_program_are_one_to_its_gradient() -> None:
    """A layer that is written twice has the products of one in gradients, and both have their part in their values."""
    rng = np.random.default_rng(3)
    arrays = rng.normal(size=(4, 3)), rng.normal(size=(3, 3))
    x, w = (Variable.from_numpy_array(a, need_grad=True) for a in arrays)
    layers = [F.tanh(F.sin(x @ w) @ w) for _ in range(2)]
    once, twice = F.sum(layers[0] ** 2 * F.exp(layers[0])), F.sum(layers[0] ** 2 * F.exp(layers[1]))
    of_one, of_two = (nn.count(nn.grad(each, [x, w])).by_order[1] for each in (once, twice))
    assert of_two.matrix_products == of_one.matrix_products

    def theirs(x: Any, w: Any) -> Any:
        h = jnp.tanh(jnp.sin(x @ w) @ w)
        return jnp.sum(h**2 * jnp.exp(h))

    y, function = twice, theirs
    for order in (1, 2, 3):
        (g,), slope = nn.grad(y, x), jax.grad(function)
        np.testing.assert_allclose(g.d, by_jax(slope, *arrays), rtol=1e-9, atol=1e-9, err_msg=f"order {order}")
        y, function = F.sum(F.sin(g)), lambda x, w, slope=slope: jnp.sum(jnp.sin(slope(x, w)))


def test_of_equal_functions_of_a_program_what_is_asked_for_stands_for_itself() -> None:
    x = Variable.from_numpy_array(np.array([0.3, 0.8]), need_grad=True)
    a, b = [F.sin(x) * x for _ in range(2)]
    result = F.sum(a**2 * b)
    v, slope = np.sin(x.d) * x.d, np.cos(x.d) * x.d + np.sin(x.d)
    np.testing.assert_allclose(nn.grad(result, b)[0].d, v**2, rtol=1e-12)
    np.testing.assert_allclose(nn.grad(result, x, stop_gradients=[b])[0].d, 2 * v**2 * slope, rtol=1e-12)
    np.testing.assert_allclose(nn.grad(result, x)[0].d, 3 * v**2 * slope, rtol=1e-12)
    result.forward()
    b.need_grad = False
    np.testing.assert_allclose(nn.grad(result, x)[0].d, 2 * v**2 * slope, rtol=1e-12)


@pytest.mark.parametrize(("at", "stops"), list(product(["inner", "outer"], [False, True])))
def test_what_is_asked_for_stands_for_itself(at: str, stops: bool) -> None:
    """Of two equal gradients one is an input, or a stop: what arrives at the other is not its own."""
    x = Variable.from_numpy_array(np.array([0.3, 0.8]))
    y = F.sin(x) * x
    (a,), (b,) = nn.grad(y, x), nn.grad(y, x)
    result = F.sum(a**2 * b)
    given = a if at == "inner" else b
    if stops:
        (g,) = nn.grad(result, x, stop_gradients=[given])
    else:
        (g,) = nn.grad(result, given)
    v = np.cos(x.d) * x.d + np.sin(x.d)
    slope = 2 * np.cos(x.d) - np.sin(x.d) * x.d
    by_a, by_b = 2 * v * v, v * v
    expected = (by_b if at == "inner" else by_a) * slope if stops else (by_a if at == "inner" else by_b)
    np.testing.assert_allclose(g.d, expected, rtol=1e-12)


def test_limits_of_gradients_hold_for_each() -> None:
    """Functions of two gradients that limit what arrives are not one: half of it would arrive at both."""
    x = Variable.from_numpy_array(np.array([0.5]))
    (a,), (b,) = nn.grad(x**3, x), nn.grad(x**3, x)
    clipped = [F.clip_grad_by_value(each, -1.0 * F.constant(1, (1,), np.float64), F.constant(1, (1,), np.float64))
               for each in (a, b)]
    (g,) = nn.grad(F.sum(3 * clipped[0] + 3 * clipped[1]), x)
    np.testing.assert_allclose(g.d, [2 * 6 * 0.5], rtol=1e-12)
