"""Interpolation at evenly spaced positions: the elements that contribute to each result, and their weights."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Grid(NamedTuple):
    """Positions along an axis: element i of the result is at `offset + step i`, counted in elements of the input."""

    size: int
    step: float
    offset: float


class Kernel(NamedTuple):
    """The interpolation kernel; `resample` describes its options."""

    mode: str
    rounding: str = "floor"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    bounded: bool = False


class Taps(NamedTuple):
    """For each element of the result, the indices of the elements that it sums, (size, count), and their weights; all
    weights are 0 if there are none."""

    indices: np.ndarray
    weights: np.ndarray


_MOST = 2**24
"""The largest size of an interpolated axis, before or after."""
ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda p: np.ceil(p - 0.5),
    "round_prefer_ceil": lambda p: np.floor(p + 0.5),
}


@functools.lru_cache(maxsize=256)
def taps(count: int, grid: Grid, kernel: Kernel) -> Taps:
    """The taps for interpolation along a nonempty axis of `count` elements."""
    longest = max(count, grid.size)
    if longest > _MOST:
        raise ValueError(f"an interpolated axis must have at most {_MOST} elements, got {longest}: the weights are "
                         "constants of the program")
    at = positions(grid)
    last = count - 1
    if kernel.mode == "nearest":
        indices, weights = ROUNDINGS[kernel.rounding](at)[:, None], np.ones((grid.size, 1))
    elif kernel.mode == "linear":
        inside = np.clip(at, 0, last)
        first = np.clip(np.floor(inside), 0, max(last - 1, 0))
        indices = first[:, None] + np.arange(2)
        weights = np.stack([1 - (inside - first), inside - first], 1)
    elif kernel.mode == "area":
        ends = positions(Grid(grid.size + 1, grid.step, grid.offset))
        first, stop = np.floor(ends[:-1, None]), np.ceil(ends[1:, None])
        indices = first + np.arange(int((stop - first).max(initial=0)))
        weights = (indices < stop) / (stop - first)
    else:
        first = np.floor(at) - 1
        indices = first[:, None] + np.arange(4)
        weights = _cubic(np.abs(at[:, None] - indices), kernel.cubic_coeff_a)
        if kernel.exclude_outside:
            weights = weights * ((indices >= 0) & (indices <= last))
            sums = weights.sum(1, keepdims=True)
            weights = np.divide(weights, sums, out=np.zeros_like(weights), where=sums != 0)
    if kernel.bounded:
        weights = weights * ((at >= 0) & (at <= last))[:, None]
    used = weights.any(0)
    return _filled(np.clip(indices, 0, last).astype(np.int32)[:, used], weights[:, used])


def _filled(indices: np.ndarray, weights: np.ndarray) -> Taps:
    """The same taps without weights of 0, except in rows of zeros. Each 0 is replaced by half of the row's largest
    weight, taken twice, which is exact. An element without weight must not matter even if it is infinite, and to mask
    such elements would take as long as the rest."""
    rows = np.arange(len(weights))
    while True:
        empty = (weights == 0) & weights.any(1, keepdims=True)
        lacking = rows[empty.any(1)]
        if not len(lacking):
            return Taps(indices, weights)
        largest, place = np.abs(weights[lacking]).argmax(1), empty[lacking].argmax(1)
        weights[lacking, largest] /= 2
        weights[lacking, place], indices[lacking, place] = weights[lacking, largest], indices[lacking, largest]


def positions(grid: Grid) -> np.ndarray:
    """The positions of the result's elements. Those within rounding of a whole or half number are set to it, since
    'nearest' depends on it."""
    at = grid.offset + grid.step * np.arange(grid.size)
    halves = np.round(2 * at) / 2
    return np.where(np.abs(at - halves) < 1e-6, halves, at)


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """The kernel of cubic convolution (Keys 1981)."""
    d = distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = a * (((d - 5) * d + 8) * d - 4)
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def transposed_taps(forward: Taps, count: int) -> Taps:
    """The taps of the transpose: for each of `count` elements, the results that it contributes to. So the transpose
    gathers too: on a CPU, a scatter takes two to eighteen times as long."""
    size, width = forward.indices.shape
    results, elements, weights = np.repeat(np.arange(size), width), forward.indices.ravel(), forward.weights.ravel()
    order = np.flatnonzero(weights)
    order = order[np.argsort(elements[order], kind="stable")]
    results, elements, weights = results[order], elements[order], weights[order]
    counts = np.bincount(elements, minlength=count)
    place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    taken = np.zeros((count, counts.max(initial=0)), np.int32)
    shares = np.zeros(taken.shape)
    taken[elements, place], shares[elements, place] = results, weights
    return _filled(taken, shares)
