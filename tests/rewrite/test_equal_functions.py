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
from nngrad.graph import Variable, functions_of
from tests.oracle import by_jax


def test_equal_functions_of_two_gradients_are_one_to_the_next() -> None:
    """Two calls emit the same functions; a gradient through both has the products of one."""
    x, w = Variable((8, 1)), [Variable(shape, need_grad=True) for shape in [(1, 6), (6, 6), (6, 1)]]
    u = F.tanh(F.tanh(x @ w[0]) @ w[1]) @ w[2]
    (first,), (second,) = nn.grad(u, x), nn.grad(u, x)
    assert first is not second
    of_one, of_two = (nn.count(nn.grad(F.sum(first * each), w)).by_order[2] for each in (first, second))
    assert of_two.matrix_products == of_one.matrix_products


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


def test_rows_that_are_gathered_twice_are_one_to_their_gradient() -> None:
    """`F.gather` has NaN for what lies outside, which no gradient is multiplied by."""
    x, i = Variable.from_numpy_array(np.array([[0.3], [0.8], [0.1]])), np.array([2, 0, 2, 1])
    at = Variable.from_numpy_array(i)
    a, b = [F.sin(F.gather(x, at, axis=0)) for _ in range(2)]
    (g,) = nn.grad(F.sum(F.exp(a) * b), x)
    assert [f.op.name for f in functions_of([g])].count("put_points") == 1
    expected = jax.grad(lambda x: jnp.sum(jnp.exp(jnp.sin(x[i])) * jnp.sin(x[i])))
    np.testing.assert_allclose(g.d, by_jax(expected, x.d), rtol=1e-12)


def test_what_is_computed_of_equal_numbers_is_one_to_its_gradient() -> None:
    x = Variable.from_numpy_array(np.array([0.3, -0.8, 2.5]))

    def layer(other: float) -> Variable:
        return F.exp(F.maximum2(F.where(x > 0, F.sin(x), other), 0.125))

    layers = layer(0.25), layer(0.25), layer(0.5)
    once, twice, apart = (nn.grad(F.sum(layers[0] * each), x)[0] for each in layers)
    counts = [sum([f.order > 0 for f in functions_of([g])]) for g in (once, twice, apart)]
    assert counts[1] - counts[0] <= 1 < counts[2] - counts[0]  # the sum of two gradients in place of a square's
    y = np.exp(np.maximum(np.where(x.d > 0, np.sin(x.d), 0.25), 0.125))
    inside = (x.d > 0) & (np.sin(x.d) > 0.125)
    np.testing.assert_allclose(twice.d, np.where(inside, 2 * y**2 * np.cos(x.d), 0), rtol=1e-12)


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
