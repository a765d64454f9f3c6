"""Quantisers: values in every mode, gradients, and what `forward()` writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable
from tests.refusals import refused
from tests.together import Test, at_once

from_ = Variable.from_numpy_array
NAN, INF = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def _empty() -> None:
    nn.clear_parameters()
    nn.seed(0)


def leaf(*values: Any, dtype: str = "float32") -> Variable:
    return from_(np.array(values, dtype), need_grad=True)


def gradient(y: Variable, x: Variable) -> Any:
    (g,) = nn.grad(F.sum(y), [x])
    return g.d.tolist()


# ---------------------------------------------------------------- values in every mode

VALUES: list[tuple[str, dict[str, Any], list[float], list[float]]] = [
    ("binary_sigmoid", {}, [-1, 0, NAN, 1e-30], [0, 0, 0, 1]),
    ("binary_tanh", {}, [-1, 0, NAN, 1e-30], [-1, -1, -1, 1]),
    ("fixed_point_quantize", {}, [0.03125, -0.03125, 9, -INF, NAN], [0.0625, -0.0625, 7.9375, -7.9375, NAN]),
    ("fixed_point_quantize", {"sign": False, "n": 2, "delta": 1}, [-1, 0.5, 2.4, 7], [0, 1, 2, 3]),
    ("fixed_point_quantize", {"quantize": False}, [-1, 0.01, 90], [-1, 0.01, 90]),
    ("pow2_quantize", {}, [3, 1.4143, 1.4142, -0.7, 0, NAN], [2, 2, 1, -0.5, 0, NAN]),
    ("pow2_quantize", {"n": 4, "m": 0}, [0.0883, 0.0884, 0.1767, -0.1768, -5], [0, 0.125, 0.125, -0.25, -1]),
    ("pow2_quantize", {"n": 3, "m": 0, "with_zero": False}, [0, 0.2, -0.01, -3], [0.125, 0.25, -0.125, -1]),
    ("pow2_quantize", {"n": 3, "m": 0, "sign": False}, [-3, 0.6, 0.05], [0, 0.5, 0]),
    ("pow2_quantize", {"n": 2, "m": 0, "sign": False, "with_zero": False}, [-3, 0, 0.6], [0.125, 0.125, 0.5]),
    ("pow2_quantize", {"quantize": False}, [-3, 0.6], [-3, 0.6]),
    ("prune", {}, [1, -2, 3, -4], [0, 0, 3, -4]),
    ("prune", {"rate": 0.0}, [1, -2, 0], [1, -2, 0]),
    ("prune", {"rate": 1.0}, [1, -2, 3], [0, 0, 0]),
    ("prune", {"rate": 0.5}, [2, -2, 2, 1], [2, -2, 2, 0]),
]


@at_once
@pytest.mark.parametrize(("name", "arguments", "x", "expected"), VALUES)
def test_values(name: str, arguments: dict[str, Any], x: list[float], expected: list[float]) -> Test:
    (found,) = yield (getattr(F, name)(leaf(*x), **arguments),)
    np.testing.assert_array_equal(found, np.array(expected, "f"))


GRADIENTS: list[tuple[str, dict[str, Any], list[float], list[float]]] = [
    ("binary_sigmoid", {}, [-1, -0.9, 0, 0.9, 1], [0, 0.5, 0.5, 0.5, 0]),
    ("binary_tanh", {}, [-1, -0.9, 0, 0.9, 1], [0, 1, 1, 1, 0]),
    ("fixed_point_quantize", {}, [-8, -7.9375, 0.01, 7.9375, 8], [0, 1, 1, 1, 0]),
    ("fixed_point_quantize", {"sign": False}, [-0.1, 0, 15.9375, 16], [0, 1, 1, 0]),
    ("fixed_point_quantize", {"ste_fine_grained": False}, [-9, 0.1, 9], [1, 1, 1]),
    ("pow2_quantize", {}, [-2.9, -2.8, 0, 0.01, 2.8, 2.9], [0, 1, 1, 1, 1, 0]),
    ("pow2_quantize", {"sign": False}, [-0.1, 0, 2.8, 2.9], [0, 1, 1, 0]),
    ("pow2_quantize", {"ste_fine_grained": False}, [-2.9, 2.9], [1, 1]),
    ("prune", {}, [1, -2, 3], [1, 1, 1]),
]


@at_once
@pytest.mark.parametrize(("name", "arguments", "x", "expected"), GRADIENTS)
def test_gradients_at_the_ends_of_ranges(
    name: str, arguments: dict[str, Any], x: list[float], expected: list[float]
) -> Test:
    given = leaf(*x)
    (slope,) = yield nn.grad(F.sum(getattr(F, name)(given, **arguments)), given)
    assert slope.tolist() == expected
    assert not nn.registry[name].exact


def test_a_quantised_value_at_order_2_is_what_the_rest_has() -> None:
    """d/dx of y^3 is 3 y^2 as if y were x, and of that 6 y."""
    x = leaf(0.4, -1.3)
    y = F.fixed_point_quantize(x, delta=0.25)
    (g,) = nn.grad(F.sum(y**3), [x])
    (gg,) = nn.grad(F.sum(g), [x])
    np.testing.assert_allclose(g.d, 3 * y.d**2)
    np.testing.assert_allclose(gg.d, 6 * y.d)


# ---------------------------------------------------------------- ranges


def ranged(x: Variable, low: float, high: float, levels: float = 255, **options: Any) -> tuple[Any, Any, Any]:
    ends = [from_(np.full((1,) * x.ndim, v, x.dtype), need_grad=k < 2) for k, v in enumerate((low, high, 0, levels))]
    return F.min_max_quantize(x, *ends, **options), ends[0], ends[1]


@pytest.mark.parametrize(("low", "high"), [(-0.8, 1.1), (0.3, 2.0), (-3.0, -1.0), (0.0, 1.0), (1.0, 1.0), (1.0, 0.5)])
def test_zero_is_a_level_of_every_range(low: float, high: float) -> None:
    y, *_ = ranged(leaf(0.0, -100.0, 100.0), low, high, 15)
    step = (max(high, low + 0.01) - low) / 15
    zero, least, largest = y.d
    assert zero == 0
    assert least <= 0 <= largest
    np.testing.assert_allclose(largest - least, 15 * step, rtol=1e-4)
    np.testing.assert_allclose(least / step, np.round(least / step), atol=1e-3)


def test_a_range_follows_the_data_only_in_a_forward() -> None:
    x = leaf(-1.0, 3.0)
    y, low, high = ranged(x, -6, 6, x_min_max=True)
    assert (low.d, high.d) == (-6, 6)
    _ = y.d
    assert (low.d, high.d) == (-6, 6)
    y.forward()
    assert (low.d, high.d) == (-1, 3)
    y, low, high = ranged(x, -6, 6, x_min_max=True, ema=True, decay=0.75)
    for expected in ((-4.75, 5.25), (-3.8125, 4.6875)):
        y.forward()
        np.testing.assert_allclose((low.d.item(), high.d.item()), expected)
    y, low, high = ranged(leaf(2.0, 2.0), -6, 6, x_min_max=True, eps=0.5)
    y.forward()
    assert (low.d, high.d) == (2, 2.5)


def test_where_the_gradient_of_a_range_goes() -> None:
    x = leaf(-9.0, -0.5, 0.5, 9.0, 10.0)
    for options, gx, ends in (({}, [0, 1, 1, 0, 0], (1, 2)), ({"ste_fine_grained": False}, [1] * 5, (1, 2)),
                              ({"x_min_max": True}, [1, 1, 1, 1, 0], (0, 0)), ({"ema": True}, [0, 1, 1, 0, 0], (0, 0))):
        y, low, high = ranged(x, -1, 1, **options)  # that of x itself is moved, so that 10 is above it
        assert gradient(y, x) == gx
        assert (gradient(y, low), gradient(y, high)) == ([ends[0]], [ends[1]])


# ---------------------------------------------------------------- what a forward writes


def test_a_range_in_the_body_of_a_loop() -> None:
    low, high, *levels = [from_(np.array([[v]], "f")) for v in (-6, 6, 0, 8)]
    w = leaf([1.0], [1.0])

    def quantised(x: Variable) -> Variable:
        return F.min_max_quantize(x * w, low, high, *levels, x_min_max=True)

    xs = from_(np.array([[[0.0], [2.0]], [[-1.0], [3.0]]], "f"))
    _, ys = F.scan(lambda _, x: (None, quantised(x)), None, xs)
    ys.forward()
    assert ys.d.ravel().tolist() == [0, 2, -1, 3]
    assert (low.d, high.d) == (-1, 3)
    assert gradient(ys, w) == [[-1], [5]]
    low.d, high.d = -6, 6
    _, gs = F.scan(lambda _, x: (None, nn.grad(F.sum(quantised(x) ** 2), [w])[0]), None, xs)
    gs.forward()
    np.testing.assert_array_equal(gs.d.ravel(), [0, 8, 2, 18])
    assert (low.d, high.d) == (-1, 3)


# ---------------------------------------------------------------- what is refused

X, ONE = leaf([1.0, 2.0]), np.zeros((1, 1), "f")
FAILING: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (ValueError, "must be between 2 and 32 bits, including 1 for sign, got 1", lambda: F.fixed_point_quantize(X, n=1)),
    (ValueError, "must be between 3 and 32 bits, including 2 for sign and with_zero", lambda: F.pow2_quantize(X, n=2)),
    (ValueError, "rate must be between 0 and 1, got 1.5", lambda: F.prune(X, rate=1.5)),
    (ValueError, "qr_max must have the shape of qr_min", lambda: F.min_max_quantize(X, ONE, X, ONE, ONE)),
    (ValueError, "dtype must be int8 or uint8, got int16", lambda: F.quantize_linear(X, ONE, ONE, dtype="int16")),
    (TypeError, "scale must have a floating dtype, got", lambda: F.dequantize_linear(X, np.ones((1, 1), np.int8), ONE)),
    (TypeError, "x must have the dtype of y, float32", lambda: F.straight_through(X, np.ones((1, 2), np.int32))),
]


test_errors = refused(FAILING)
