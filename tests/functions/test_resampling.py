"""Interpolation beyond what the sample table says: every mode against loops over elements, and dtypes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from tests.refusals import refused
from tests.together import Test, at_once

from_ = nn.Variable.from_numpy_array
RNG = np.random.default_rng(0)


def weight_of(p: float, i: int, n: int, mode: str, rounding: str, a: float, exclude: bool) -> float:
    """The weight that element i of n has at position p."""
    def nearest(q: float) -> int:
        down = {"floor": math.floor(q), "ceil": math.ceil(q), "round_prefer_floor": math.ceil(q - 0.5),
                "round_prefer_ceil": math.floor(q + 0.5)}[rounding]
        return min(max(down, 0), n - 1)

    def cubic(d: float) -> float:
        d = abs(d)
        if d >= 2:
            return 0.0
        return (a + 2) * d**3 - (a + 3) * d**2 + 1 if d <= 1 else a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a

    if mode == "nearest":
        return float(nearest(p) == i)
    if mode == "linear":
        return max(0.0, 1 - abs(min(max(p, 0), n - 1) - i))
    around = range(math.floor(p) - 1, math.floor(p) + 3)
    if exclude:
        return cubic(p - i) / sum([cubic(p - j) for j in around if 0 <= j < n]) if i in around else 0.0
    return sum([cubic(p - j) for j in around if min(max(j, 0), n - 1) == i])


def resized(x: Any, positions: list[list[float]], *kernel: Any) -> Any:
    """The last axes of x, one after the other, at positions."""
    for axis, each in zip(range(x.ndim - len(positions), x.ndim), positions, strict=True):
        n = x.shape[axis]
        matrix = np.array([[weight_of(p, i, n, *kernel) for i in range(n)] for p in each])
        x = np.moveaxis(np.tensordot(x, matrix, axes=((axis,), (1,))), -1, axis)
    return x


@at_once
@pytest.mark.parametrize("mode, options", [
    *itertools.product(("linear", "nearest"), ({}, {"align_corners": True}, {"half_pixel": True})),
    ("nearest", {"half_pixel_for_nn": True}), ("nearest", {"half_pixel_for_nn": True, "align_corners": True}),
])
def test_interpolate(mode: str, options: dict[str, bool]) -> Test:
    x = RNG.standard_normal((2, 5, 4, 3))

    def at(n: int, m: int) -> list[float]:
        if mode == "nearest" and options.get("half_pixel_for_nn"):
            return [(i + 0.5) * n / m for i in range(m)]
        if m == 1:
            return [0.0]
        if options.get("align_corners"):
            return [i * (n - 1) / (m - 1) for i in range(m)]
        return [max(0.0, (i + 0.5) * n / m - 0.5) if options.get("half_pixel") else i * n / m for i in range(m)]

    every = (10, 3, 1), (7, 4, 6), (2,)
    found = yield [F.interpolate(from_(x), output_size=sizes, mode=mode, **options) for sizes in every]
    for y, sizes in zip(found, every, strict=True):
        places = [at(n, m) for n, m in zip(x.shape[-len(sizes):], sizes, strict=True)]
        np.testing.assert_allclose(y, resized(x, places, mode, "floor", 0, False), atol=1e-12)


COORDINATES = {
    "half_pixel": lambda i, n, m, s: (i + 0.5) / s - 0.5,
    "pytorch_half_pixel": lambda i, n, m, s: (i + 0.5) / s - 0.5 if m > 1 else 0.0,
    "align_corners": lambda i, n, m, s: i * (n - 1) / (m - 1) if m > 1 else 0.0,
    "asymmetric": lambda i, n, m, s: i / s,
    "tf_half_pixel_for_nn": lambda i, n, m, s: (i + 0.5) / s,
    "tf_crop_and_resize": lambda i, n, m, s: 0.2 * (n - 1) + i * 0.7 * (n - 1) / (m - 1) if m > 1 else 0.55 * (n - 1),
}


@at_once
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("kernel", [
    ("nearest", "round_prefer_floor", 0, False), ("nearest", "round_prefer_ceil", 0, False),
    ("nearest", "floor", 0, False), ("nearest", "ceil", 0, False), ("linear", "floor", 0, False),
    ("cubic", "floor", -0.75, False), ("cubic", "floor", -0.5, True),
])
def test_onnx_resize(coordinates: str, kernel: tuple[Any, ...]) -> Test:
    mode, rounding, a, exclude = kernel
    x = RNG.standard_normal((1, 4, 5))
    options = (mode, coordinates, a, int(exclude), 0.0, rounding)
    every = (1.0, 2.0, 0.6), (1.0, 1.3, 0.2)
    found = yield [F.onnx_resize(from_(x), (0.2,) * 3 + (0.9,) * 3, scales, (), *options) for scales in every]
    for y, scales in zip(found, every, strict=True):
        sizes = [math.floor(n * s) for n, s in zip(x.shape, scales, strict=True)]
        places = [
            [COORDINATES[coordinates](i, n, m, s) for i in range(m)]
            for n, m, s in zip(x.shape[1:], sizes[1:], scales[1:], strict=True)
        ]
        np.testing.assert_allclose(y, resized(x, places, *kernel), atol=1e-12)


@at_once
def test_what_is_as_far_from_two_elements_is_so_in_spite_of_rounding() -> Test:
    x = from_(np.arange(10.0))
    shorter, longer = yield (F.onnx_resize(x, scales=(0.2,), coordinate_transformation_mode="asymmetric"),
                             F.interpolate(x, output_size=(100,), mode="nearest"))
    np.testing.assert_array_equal(shorter, [0, 5])
    np.testing.assert_array_equal(longer, np.repeat(np.arange(10.0), 10))


@at_once
def test_an_infinite_element_stays_where_it_is() -> Test:
    x = from_(np.array([np.inf, 1.0, 2.0, 3.0]), need_grad=True)
    (gx,) = nn.grad([F.interpolate(x, output_size=(2,))], [x], grad_outputs=[from_(np.array([np.inf, 1.0]))])
    y, slope = yield F.interpolate(x, output_size=(8,), half_pixel=True), gx
    assert np.isfinite(y[4:]).all() and np.isinf(y[:3]).all()
    np.testing.assert_array_equal(slope, [np.inf, 0, 1, 0])


X = from_(np.ones((1, 2, 3)))


test_what_is_wrong_is_named = refused([
    (lambda: F.interpolate(X), "scale or output_size is required"),
    (lambda: F.onnx_resize(X, scales=(1, 2)), "a number for each axis"),
])


@at_once
def test_a_number_is_for_all_spatial_axes() -> Test:
    x = from_(np.random.default_rng(0).standard_normal((1, 2, 3, 4)))
    last = F.transpose(x, (0, 2, 3, 1))
    results = [F.interpolate(x, 2), F.interpolate(x, (2, 2)), F.interpolate(last, 2, channel_last=True)]
    one, same, other, size = yield (*results, F.interpolate(x, None, 5))
    assert np.array_equal(one, same) and np.array_equal(other.transpose(0, 3, 1, 2), one) and size.shape == (1, 2, 5, 5)
