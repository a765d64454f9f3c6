"""Horizontal positions of the boxes in a column of a drawing, and of arrows that pass them.

This is Sugiyama's method: an arrow over several layers has a point in each layer between, boxes and points are sorted
by the means of their neighbours, and then moved so that arrows become short. That is a quadratic programme, which is
solved layer by layer, each exactly, by pooling things that would overlap. In later rounds reweighting turns squares
into lengths, since the least sum of lengths has straight lines and a few bends, and that of squares many small bends.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple

SWEEPS, MOVES, SQUARES = 12, 100, 40
_LIGHT = 0.02
"""The weight that pulls things to the middle if nothing else does."""
_STILL = 0.1
"""Iteration stops when nothing moves farther than this."""


class Thing(NamedTuple):
    """A box or a point of an arrow, in a column."""

    layer: int
    width: float
    space: float
    """The free space on either side of it."""
    is_point: bool


class Link(NamedTuple):
    """A segment of an arrow, between things of consecutive layers."""

    upper: int
    lower: int
    weight: float


def column_centres(
    things: Sequence[Thing], links: Sequence[Link], leanings: Sequence[float], keys: Sequence[object]
) -> list[float]:
    """The centres of the things in one column; the leftmost edge is at 0.

    Args:
        things: The things to place.
        links: The arrow segments, which should be short and cross rarely.
        leanings: For each thing the pull towards columns on the left (below 0) or on the right.
        keys: Equal keys for things that should be side by side.
    """
    count = 1 + max([t.layer for t in things], default=-1)
    layers: list[list[int]] = [[] for _ in range(count)]
    for i, thing in enumerate(things):
        layers[thing.layer].append(i)
    up: list[list[tuple[int, float]]] = [[] for _ in things]
    down: list[list[tuple[int, float]]] = [[] for _ in things]
    for upper, lower, weight in links:
        down[upper].append((lower, weight))
        up[lower].append((upper, weight))
    _order(layers, links, up, down, leanings, keys)
    x = _moved(layers, things, up, down)
    left = min([x[i] - things[i].width / 2 for i in range(len(things))], default=0.0)
    return [value - left for value in x]


# ---------------------------------------------------------------- order


def _order(
    layers: list[list[int]], links: Sequence[Link], up: Sequence[Sequence[tuple[int, float]]],
    down: Sequence[Sequence[tuple[int, float]]], leanings: Sequence[float], keys: Sequence[object],
) -> None:  # fmt: skip
    """Sort each layer so that few links cross; the best of several orders wins."""
    best = [list(layer) for layer in layers]
    fewest = _crossings(layers, links)
    share = {i: (n + 0.5) / len(layer) for layer in layers for n, i in enumerate(layer)}
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        for layer in layers if downwards else reversed(layers):
            means = {}
            for i in layer:
                near = (up if downwards else down)[i] or (down if downwards else up)[i]
                mean = sum([share[j] for j, _ in near]) / len(near) if near else share[i]
                means[i] = mean + 0.5 * leanings[i]
            together: dict[object, list[float]] = {}
            for i in layer:
                together.setdefault(keys[i] if keys[i] else i, []).append(means[i])
            group = {key: sum(values) / len(values) for key, values in together.items()}
            layer.sort(key=lambda i: (group[keys[i] if keys[i] else i], str(keys[i]), means[i]))
            share.update({i: (n + 0.5) / len(layer) for n, i in enumerate(layer)})
        crossed = _crossings(layers, links)
        if crossed < fewest:
            fewest, best = crossed, [list(layer) for layer in layers]
    for layer, order in zip(layers, best, strict=True):
        layer[:] = order


def _crossings(layers: Sequence[Sequence[int]], links: Sequence[Link]) -> int:
    """The number of crossings of links."""
    at = {i: n for layer in layers for n, i in enumerate(layer)}
    layer_of = {i: n for n, layer in enumerate(layers) for i in layer}
    between: dict[int, list[tuple[int, int]]] = {}
    for upper, lower, _ in links:
        between.setdefault(layer_of[upper], []).append((at[upper], at[lower]))
    crossed = 0
    for ends in between.values():
        seen: list[int] = []
        for _, lower in sorted(ends):
            crossed += len(seen) - bisect.bisect_right(seen, lower)
            bisect.insort(seen, lower)
    return crossed


# ---------------------------------------------------------------- places


def _moved(
    layers: Sequence[Sequence[int]], things: Sequence[Thing], up: Sequence[Sequence[tuple[int, float]]],
    down: Sequence[Sequence[tuple[int, float]]],
) -> list[float]:  # fmt: skip
    """Centres that minimise the squared lengths of links; no two things of a layer overlap."""
    x = [0.0] * len(things)
    offsets: list[list[float]] = []
    for layer in layers:
        offset, row = 0.0, []
        for before, i in zip([None, *layer], layer, strict=False):
            if before is not None:
                a, b = things[before], things[i]
                offset += (a.width + b.width) / 2 + max(a.space, b.space)
            row.append(offset)
        offsets.append(row)
        for i, at in zip(layer, row, strict=True):
            x[i] = at - row[-1] / 2
    for move in range(MOVES):
        numbers, moved = range(len(layers)), 0.0
        for n in numbers if move % 2 == 0 else reversed(numbers):
            wanted, weights = [], []
            for i, offset in zip(layers[n], offsets[n], strict=True):
                near = [*up[i], *down[i]]
                if move > SQUARES:
                    near = [(j, w / (1 + abs(x[i] - x[j]))) for j, w in near]
                weight = sum([w for _, w in near]) + _LIGHT
                wanted.append(sum([x[j] * w for j, w in near]) / weight - offset)
                weights.append(weight)
            for i, at, offset in zip(layers[n], rising(wanted, weights), offsets[n], strict=True):
                moved = max(moved, abs(at + offset - x[i]))
                x[i] = at + offset
        if moved < _STILL and move > SQUARES:
            break
    return x


def rising(wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Isotonic regression: the nondecreasing numbers nearest to `wanted` in weighted least squares, by pooling."""
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(wanted, weights, strict=True):
        count = 1
        while pools and pools[-1][0] > value:
            other, other_weight, other_count = pools.pop()
            value = (value * weight + other * other_weight) / (weight + other_weight)
            weight, count = weight + other_weight, count + other_count
        pools.append((value, weight, count))
    return [value for value, _, count in pools for _ in range(count)]
