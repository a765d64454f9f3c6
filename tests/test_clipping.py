"""Gradients within bounds, at every order; and numbers that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable

from_ = Variable.from_numpy_array


def test_clipped_values_are_differentiated_as_such() -> None:
    x = from_(np.array([-1.0, 0.5, 3.0]), need_grad=True)
    inner = F.clip_grad_by_value(x, -2.0, 2.0)
    (g,) = nn.grad(F.sum(inner**3), x)
    np.testing.assert_allclose(g.d, np.clip(3 * x.d**2, -2, 2))
    # The second and third elements: of a gradient at a bound the derivative is 0, and 6 x = 3 is clipped in turn.
    (gg,) = nn.grad(F.sum(g), x)
    np.testing.assert_allclose(gg.d, [0, 2, 0])
    with nn.simplify(False):
        np.testing.assert_allclose(nn.grad(F.sum(nn.grad(F.sum(inner**3), x)[0]), x)[0].d, gg.d)


@pytest.mark.parametrize("axes", [None, (1,)])
def test_a_gradient_gets_its_norm(axes: Any) -> None:
    rng = np.random.default_rng(0)
    x = from_(rng.standard_normal((2, 3)), need_grad=True)
    (g,) = nn.grad(F.sum(F.clip_grad_by_norm(x, clip_norm=0.5, axes=axes) ** 3), x)
    raw = 3 * x.d**2
    length = np.sqrt((raw**2).sum(axis=axes, keepdims=True))
    np.testing.assert_allclose(g.d, 0.5 * raw / length)
    # Its derivative along v: that of 0.5 raw / length, through raw = 3 x^2, brought to the norm 0.5 again.
    v = rng.standard_normal((2, 3))
    along = 0.5 * (v / length - raw * (raw * v).sum(axis=axes, keepdims=True) / length**3) * 6 * x.d
    (gg,) = nn.grad(F.sum(g * v), x)
    np.testing.assert_allclose(gg.d, 0.5 * along / np.sqrt((along**2).sum(axis=axes, keepdims=True)))


def test_a_gradient_of_zero_stays_zero_at_every_order() -> None:
    x = from_(np.zeros(3), need_grad=True)
    g = F.sum(F.clip_grad_by_norm(x) ** 2)
    for _ in range(3):
        (g,) = nn.grad(F.sum(g), x)
        assert g.d.tolist() == [0, 0, 0]


def test_of_a_gradient_the_largest_stay() -> None:
    x = from_(np.array([[1.0, -3.0, 2.0], [-1.0, -2.0, -0.5]]), need_grad=True)
    for abs_, expected in ((False, [[0, 0, 4], [0, 0, -1]]), (True, [[0, -6, 0], [0, -4, 0]])):
        (g,) = nn.grad(F.sum(F.top_k_grad(x, 1, abs=abs_) ** 2), x)
        assert g.d.tolist() == expected
    (g,) = nn.grad(F.sum(F.top_k_grad(x, 2, base_axis=0) ** 2), x)
    assert g.d.tolist() == [[2, 0, 4], [0, 0, 0]]


@pytest.mark.parametrize("limit", [
    lambda x: F.clip_grad_by_value(x, -0.1, 0.1),
    lambda x: F.clip_grad_by_norm(x, clip_norm=0.1, axes=-1),
    lambda x: F.top_k_grad(x, 1, base_axis=0),
])
def test_tangents_pass_and_rows_are_limited_by_themselves(limit: Any) -> None:
    x = from_(np.array([[1.0, -3.0], [2.0, 0.5]]), need_grad=True)
    (moved,) = nn.jvp(limit(x) ** 2, x, np.ones((2, 2)))
    np.testing.assert_allclose(moved.d, 2 * x.d)
    apart = np.stack([nn.grad(F.sum(limit(row) ** 2), row)[0].d for row in map(from_, x.d)])
    mapped = nn.vmap(lambda row: nn.grad(F.sum(limit(row) ** 2), row)[0])(x)
    np.testing.assert_allclose(mapped.d, apart)
    np.testing.assert_allclose(nn.grad(F.sum(nn.vmap(limit)(x) ** 2), x)[0].d, apart)


def test_clip_by_norm_at_zero_and_below_its_bound() -> None:
    x = from_(np.array([[0.0, 0.0], [0.3, 0.4], [3.0, 4.0]]), need_grad=True)
    y = F.clip_by_norm(x, 1.0, axis=1)
    np.testing.assert_allclose(y.d, [[0, 0], [0.3, 0.4], [0.6, 0.8]])
    (g,) = nn.grad(F.sum(y), x)
    (gg,) = nn.grad(F.sum(g * [1.0, 2.0]), x)
    np.testing.assert_allclose(g.d[:2], 1)
    assert np.isfinite(gg.d).all()


def test_remainders() -> None:
    a, b = np.array([5.5, -5.5, 6.0, 0.3]), np.array([2.0, 2.0, -3.0, 0.1])
    np.testing.assert_array_equal(F.mod2(a, b).d, np.fmod(a, b))
    x, y = from_(a, need_grad=True), from_(b, need_grad=True)
    assert nn.grad(F.sum(F.mod2(x, y)), y)[0].d.tolist() == [-2, 2, 2, -2]
    for dtype in ("int8", "int32"):
        p, q = np.array([7, -7, 7, -7], dtype), np.array([3, 3, -3, -3], dtype)
        assert F.mod2(p, q).d.tolist() == np.mod(p, q).tolist()
        assert F.mod2(p, q, fmod=True).d.tolist() == np.fmod(p, q).tolist()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtypes_are_kept(dtype: str) -> None:
    x = Variable((2, 3), dtype=dtype, need_grad=True)
    x.d = [[1, -2, 3], [4, 5, -6]]
    outputs = [
        F.reset_nan(x), F.reset_inf(x), F.isnan(x), F.isinf(x), F.mod2(x, 2.0), F.clip(x, 0.5),
        F.clip_by_value(x, 0, 1), F.clip_by_norm(x, 1.0), F.clip_grad_by_value(x, 0.0, 1.0), F.clip_grad_by_norm(x),
        F.top_k_grad(x, 1), F.zeros_like(x), F.ones_like(x), F.eye_like(x), F.bool_gather(x, [1, 0]),
        F.bool_fill(x, [1, 0, 1]), F.bool_scatter(x, [1, 0, 1]), F.unique(x), F.take_along_axis(x, [[0], [1]]),
    ]
    for y in [*outputs, *[nn.grad(F.sum(y), x)[0] for y in outputs]]:
        assert y.dtype == y.d.dtype == x.dtype, y.parent
        assert np.isfinite(y.d.astype(float)).all()


@pytest.mark.parametrize(("call", "kind", "message"), [
    (lambda: F.clip_grad_by_norm([1.0], clip_norm=0), ValueError, "clip_norm must be positive, got 0"),
    (lambda: F.clip_grad_by_norm([1.0], axes=1), ValueError, "axes 1 is out of range"),
    (lambda: F.clip_grad_by_value([1.0, 2.0], np.zeros(3), 1.0), ValueError, "min of shape .3,.* do not broadcast"),
    (lambda: F.top_k_grad([[1.0, 2.0]], 3), ValueError, "k must be between 1 and the 2 elements"),
    (lambda: F.bit_shift(np.array([1]), np.array([1])), TypeError, "x must be of unsigned integers"),
    (lambda: F.bit_shift(np.array([1], np.uint8), np.array([1]), direction="left"), ValueError, "direction must be"),
    (lambda: F.reduce([1.0], op="max"), ValueError, "^reduce: op must be 'sum' or 'mean'"),
])
def test_bad_arguments(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
