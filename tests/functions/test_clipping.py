"""Gradients within bounds, at every order; and numbers that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable
from tests.refusals import refused
from tests.together import Test, at_once

from_ = Variable.from_numpy_array


@at_once
def test_clipped_values_are_differentiated_as_such() -> Test:
    x = from_(np.array([-1.0, 0.5, 3.0]), need_grad=True)
    inner = F.clip_grad_by_value(x, -2.0, 2.0)
    (g,) = nn.grad(F.sum(inner**3), x)
    (gg,) = nn.grad(F.sum(g), x)
    with nn.simplify(False):
        (plain,) = nn.grad(F.sum(nn.grad(F.sum(inner**3), x)[0]), x)
    first, *seconds = yield g, gg, plain
    np.testing.assert_allclose(first, np.clip(3 * x.d**2, -2, 2))
    # The second and third elements: of a gradient at a bound the derivative is 0, and 6 x = 3 is clipped in turn.
    np.testing.assert_allclose(seconds, [[0, 2, 0]] * 2)


@at_once
@pytest.mark.parametrize("axes", [None, (1,)])
def test_a_gradient_gets_its_norm(axes: Any) -> Test:
    rng = np.random.default_rng(0)
    x = from_(rng.standard_normal((2, 3)), need_grad=True)
    (g,) = nn.grad(F.sum(F.clip_grad_by_norm(x, clip_norm=0.5, axes=axes) ** 3), x)
    v = rng.standard_normal((2, 3))
    first, second = yield g, *nn.grad(F.sum(g * v), x)
    raw = 3 * x.d**2
    length = np.sqrt((raw**2).sum(axis=axes, keepdims=True))
    np.testing.assert_allclose(first, 0.5 * raw / length)
    # Its derivative along v: that of 0.5 raw / length, through raw = 3 x^2, brought to the norm 0.5 again.
    along = 0.5 * (v / length - raw * (raw * v).sum(axis=axes, keepdims=True) / length**3) * 6 * x.d
    np.testing.assert_allclose(second, 0.5 * along / np.sqrt((along**2).sum(axis=axes, keepdims=True)))


@at_once
def test_a_gradient_of_zero_stays_zero_at_every_order() -> Test:
    x = from_(np.zeros(3), need_grad=True)
    orders = [F.sum(F.clip_grad_by_norm(x) ** 2)]
    for _ in range(3):
        orders += nn.grad(F.sum(orders[-1]), x)
    for g in (yield orders[1:]):
        assert g.tolist() == [0, 0, 0]


@at_once
def test_of_a_gradient_the_largest_stay() -> Test:
    x = from_(np.array([[1.0, -3.0, 2.0], [-1.0, -2.0, -0.5]]), need_grad=True)
    limited = F.top_k_grad(x, 1, abs=False), F.top_k_grad(x, 1, abs=True), F.top_k_grad(x, 2, base_axis=0)
    found = yield [nn.grad(F.sum(y**2), x)[0] for y in limited]
    np.testing.assert_array_equal(
        found, [[[0, 0, 4], [0, 0, -1]], [[0, -6, 0], [0, -4, 0]], [[2, 0, 4], [0, 0, 0]]]
    )


@at_once
@pytest.mark.parametrize("limit", [
    lambda x: F.clip_grad_by_value(x, -0.1, 0.1),
    lambda x: F.clip_grad_by_norm(x, clip_norm=0.1, axes=-1),
    lambda x: F.top_k_grad(x, 1, base_axis=0),
])
def test_tangents_pass_and_rows_are_limited_by_themselves(limit: Any) -> Test:
    x = from_(np.array([[1.0, -3.0], [2.0, 0.5]]), need_grad=True)

    def slope(row: Variable) -> Variable:
        return nn.grad(F.sum(limit(row) ** 2), row)[0]

    mapped, of_mapped = nn.vmap(slope)(x), nn.grad(F.sum(nn.vmap(limit)(x) ** 2), x)[0]
    (tangent,) = nn.jvp(limit(x) ** 2, x, np.ones((2, 2)))
    moved, *apart, one, other = yield tangent, *map(slope, map(from_, x.d)), mapped, of_mapped
    np.testing.assert_allclose(moved, 2 * x.d)
    np.testing.assert_allclose(one, apart)
    np.testing.assert_allclose(other, apart)


@at_once
def test_remainders() -> Test:
    x, y = [from_(np.array(a)) for a in ([5.5, -5.5, 6.0, 0.3], [2.0, 2.0, -3.0, 0.1])]
    wanted, expected = [F.mod2(x, y), *nn.grad(F.sum(F.mod2(x, y)), y)], [np.fmod(x.d, y.d), [-2, 2, 2, -2]]
    for dtype in ("int8", "int32"):
        p, q = np.array([7, -7, 7, -7], dtype), np.array([3, 3, -3, -3], dtype)
        wanted += [F.mod2(p, q), F.mod2(p, q, fmod=True)]
        expected += [np.mod(p, q), np.fmod(p, q)]
    for found, value in zip((yield wanted), expected, strict=True):
        np.testing.assert_array_equal(found, value)


test_bad_arguments = refused([
    (lambda: F.clip_grad_by_norm([1.0], clip_norm=0), ValueError, "clip_norm must be positive, got 0"),
    (lambda: F.clip_grad_by_value([1.0, 2.0], np.zeros(3), 1.0), ValueError, "min of shape .3,.* do not broadcast"),
    (lambda: F.top_k_grad([[1.0, 2.0]], 3), ValueError, "k must be between 1 and the 2 elements"),
    (lambda: F.bit_shift(np.array([1]), np.array([1])), TypeError, "x must have an unsigned integer dtype"),
    (lambda: F.reduce([1.0], op="max"), ValueError, "^reduce: op must be 'sum' or 'mean'"),
])
