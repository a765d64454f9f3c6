"""Warps beyond what the sample table says: every mode and padding by its definition, at whole positions too."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from tests.refusals import refused

from_ = nn.Variable.from_numpy_array


def pixel(image: Any, place: tuple[int, ...], padding: str, aligned: bool) -> Any:
    """A pixel (C,) of an image (C, *sizes), which goes on beyond its edges."""
    inside = []
    for i, n in zip(place, image.shape[1:], strict=True):
        if padding == "repeat":
            i = min(max(i, 0), n - 1)
        elif padding == "reflect":
            period = 2 * (n - 1) if aligned else 2 * n
            i %= period
            i = min(i, period - i if aligned else period - 1 - i)
        elif not 0 <= i < n:
            return np.zeros(image.shape[0])
        inside.append(i)
    return image[(slice(None), *inside)]


def sampled(image: Any, at: Any, mode: str, padding: str, aligned: bool) -> Any:
    """An image at one position (x before y)."""
    sizes = image.shape[1:]
    where = [((p + 1) * (n - 1) if aligned else (p + 1) * n - 1) / 2 for p, n in zip(at[::-1], sizes, strict=True)]
    if mode == "nearest":
        return pixel(image, tuple([int(np.floor(p + 0.5)) for p in where]), padding, aligned)
    total = 0
    for corner in itertools.product((0, 1), repeat=len(sizes)):
        place = [int(np.floor(p)) + c for p, c in zip(where, corner, strict=True)]
        total += pixel(image, tuple(place), padding, aligned) * np.prod([
            1 - abs(p - i) for p, i in zip(where, place, strict=True)
        ])
    return total


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("padding", ["zero", "repeat", "reflect"])
@pytest.mark.parametrize("aligned", [False, True])
def test_warp_by_grid(mode: str, padding: str, aligned: bool) -> None:
    rng = np.random.default_rng(0)
    for sizes in ((3, 4), (2, 3, 2)):
        x = rng.standard_normal((2, 2, *sizes))
        grid = rng.uniform(-3, 3, (2, *[1] * (len(sizes) - 1), 12, len(sizes)))
        expected = np.stack([
            np.stack([sampled(x[b], at, mode, padding, aligned) for at in grid[b].reshape(12, -1)], 1) for b in range(2)
        ])
        y = F.warp_by_grid(from_(x), from_(grid), mode, padding, aligned)
        np.testing.assert_allclose(y.d.reshape(expected.shape), expected, atol=1e-12)
        last = F.warp_by_grid(from_(np.moveaxis(x, 1, -1)), from_(grid), mode, padding, aligned, True)
        np.testing.assert_allclose(np.moveaxis(last.d, -1, 1), y.d, atol=1e-12)


@pytest.mark.parametrize("padding, slopes", [
    ("zero", [1, 2, 4, -7, 0]), ("repeat", [0, 2, 4, 0, 0]), ("reflect", [-4, 2, 4, -4, -4]),
])
def test_the_derivative_at_a_pixel_is_that_of_the_cell_behind_it(padding: str, slopes: list[float]) -> None:
    x = from_(np.array([1.0, 3.0, 7.0]).reshape(1, 1, 1, 3))
    grid = from_(np.array([[at, 0.0] for at in (-2.0, -1.0, 0.0, 1.0, 2.0)]).reshape(1, 1, 5, 2))
    (g,) = nn.grad([F.warp_by_grid(x, grid, padding_mode=padding, align_corners=True)], [grid])
    np.testing.assert_allclose(g.d[0, 0, :, 0], slopes)


def test_an_infinite_pixel_is_seen_only_from_beside_it() -> None:
    x = from_(np.array([np.inf, 1.0, 2.0, 3.0]).reshape(1, 1, 1, 4), need_grad=True)
    grid = from_(np.array([[-9.0, 0.0], [-0.9, 0.0], [0.5, 0.0]]).reshape(1, 1, 3, 2), need_grad=True)
    y = F.warp_by_grid(x, grid)
    gx, g = nn.grad([y], [x, grid])
    np.testing.assert_array_equal(np.isfinite(y.d.ravel()), [True, False, True])
    assert np.isfinite(gx.d).all() and np.isfinite(g.d[0, 0, [0, 2]]).all()


X, GRID = from_(np.ones((1, 2, 3, 3))), from_(np.zeros((1, 4, 4, 2)))


test_what_is_wrong_is_named = refused([
    (lambda: F.warp_by_grid(X, GRID, "quintic"), "mode must be 'linear', 'nearest' or 'cubic', got 'quintic'"),
    (lambda: F.warp_by_flow(X, from_(np.zeros((1, 2, 3, 4)))), "data and flow must be of shape"),
    (lambda: F.affine_grid(from_(np.zeros((1, 2, 3))), (3,)), r"size must be \(height, width\) or.*got \(3,\)"),
    (lambda: F.weighted_points(X[0], X[0], from_(np.zeros((2, 3, 4), np.int32))), "x, weights and indices must be of"),
])


@pytest.mark.parametrize("dtype", [np.int8, np.int64])
def test_points_are_numbered_in_any_integers(dtype: type) -> None:
    x, w = from_(np.arange(8.0).reshape(1, 2, 4), need_grad=True), from_(np.ones((1, 2, 3)), need_grad=True)
    y = F.weighted_points(x, w, from_(np.array([[[0, 1, 2], [1, 2, 9]]], dtype)))
    gx, gw = nn.grad([F.sum(y**2) / 2], [x, w])
    np.testing.assert_array_equal(y.d, [[[1, 3, 2], [9, 11, 6]]])
    np.testing.assert_array_equal(gx.d, [[[1, 4, 5, 0], [9, 20, 17, 0]]])
    np.testing.assert_array_equal(gw.d, [[[36, 58, 40], [46, 72, 0]]])


@pytest.mark.parametrize("points", [4, 5])
def test_points_one_channel_after_another_and_together(points: int) -> None:
    rng = np.random.default_rng(1)
    x, weights = rng.standard_normal((2, 3, 6)), rng.standard_normal((2, points, 7))
    indices = rng.choice([-2, 1, 2, 3, 4, 5, 6, 9], (2, points, 7))
    x[..., 0] = np.inf  # no point's
    expected = np.zeros((2, 3, 7))
    for b, k, q in np.argwhere((indices >= 0) & (indices < 6)):
        expected[b, :, q] += weights[b, k, q] * x[b, :, indices[b, k, q]]
    y = F.weighted_points(from_(x), from_(weights), from_(indices.astype(np.int32)))
    np.testing.assert_allclose(y.d, expected)
