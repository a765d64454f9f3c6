"""The layout that pictures and pages share: the layer and the column of each function of a graph, and horizontal
positions within a column.

Positions are those of Sugiyama's method: an arrow over several layers may have a point in each layer between, boxes and
points are sorted by the means of their neighbours, and then moved so that arrows become short. That is a quadratic
programme, which is solved layer by layer, each exactly, by pooling things that would overlap. In later rounds
reweighting turns squares into lengths, since the least sum of lengths has straight lines and a few bends, and that of
squares many small bends.
"""

from __future__ import annotations

import bisect
import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..description import Description

Cell = tuple[int, int]
"""A row and a column."""
Operands = Sequence[Sequence[tuple[int, int]]]
SWEEPS, MOVES, SQUARES = 12, 100, 40
_LIGHT = 0.02
"""The weight that pulls things to the middle if nothing else does."""
_STILL = 0.1
"""Iteration stops when nothing moves farther than this."""


# ---------------------------------------------------------------- layers


def rows_of(described: Description, nodes: Sequence[int]) -> dict[int, int]:
    """The row of each node outside of bodies: the rank of the function of order 0 that it comes from; a node of unknown
    origin is in the row of its last operand."""
    rows: dict[int, int] = {}
    for i in nodes:
        rank = described.base_ranks[i] if described.orders[i] else described.ranks[i]
        if rank < 0:
            above = [o for o, _ in described.operands[i] if described.ops[o] is not None]
            last = max(above, key=lambda o: (described.orders[o], described.ranks[o]), default=-1)
            rank = rows[last] if last >= 0 else described.ranks[i]
        rows[i] = rank
    return rows


def layers_of(at: Mapping[int, Cell], operands: Operands) -> tuple[dict[int, int], set[Cell]]:
    """The layer of each node, counted from the top, and the cells whose chains go upwards.

    A node is in the row of the forward function that it comes from, and in the column of its order of differentiation.
    Nodes in the same row and column (a cell) may depend on each other, so a cell takes several layers: downwards in the
    forward column, upwards where gradients come from below. All cells of a row have a layer in common, which has all
    nodes that do not depend on others of their cell: such a gradient is beside its function.

    Args:
        at: The row and column of each node.
        operands: For each node pairs that begin with a node that it reads; nodes without a place are ignored.
    """
    layer: dict[int, int] = {}
    free: dict[int, int] = {}
    upwards: set[Cell] = set()
    cells: dict[Cell, list[int]] = {}
    for i, cell in at.items():
        cells.setdefault(cell, []).append(i)
    for row, here in itertools.groupby(sorted(cells), key=operator.itemgetter(0)):
        columns = [column for _, column in here]
        # The row goes to the first layer with room in all columns; taller cells extend up beside earlier rows.
        line = max([free.get(column, 0) for column in columns])
        for column in columns:
            inside: dict[int, int] = {}
            chained: set[int] = set()
            below = 0  # how many more operands are in lower rows of the column than in higher ones
            for i in cells[row, column]:
                depth = 0
                for o, _ in operands[i]:
                    if o in inside:  # folded parts may read each other: operands later in the list are ignored
                        depth = max(depth, inside[o] + 1)
                        chained |= {i, o}
                    elif o in at and at[o][1] == column and at[o][0] != row:
                        below += 1 if at[o][0] > row else -1
                inside[i] = depth
            last = max(inside.values())
            if column > 0 and below >= 0:
                upwards.add((row, column))
                if last:
                    inside = {i: last - depth for i, depth in inside.items()}
            begin = max(free.get(column, 0), line - last)
            for i, n in inside.items():
                layer[i] = begin + n if i in chained else line
            free[column] = begin + last + 1
    return layer, upwards


# ---------------------------------------------------------------- positions in a column


class Thing(NamedTuple):
    """A box in a column, or a point of an arrow."""

    layer: int
    left: float
    """How far it extends to the left of its centre, and to the right."""
    right: float
    space: float
    """The free space on either side of it."""
    leaning: float = 0.0
    """The pull towards columns on the left (below 0) or on the right."""
    key: str = ""
    """Equal for things that should be side by side; empty for none."""


class Link(NamedTuple):
    """A segment of an arrow, between two things of different layers."""

    upper: int
    lower: int
    weight: float


Near = list[list[tuple[int, float]]]
"""For each thing those that it is linked with, each with the weight of the link."""


def column_centres(things: Sequence[Thing], links: Sequence[Link], rounds: int = MOVES) -> list[float]:
    """The centres of the things in one column; the leftmost edge is at 0.

    Args:
        things: The things to place.
        links: The arrow segments, which should be short and cross rarely.
        rounds: The maximum number of passes that sort, and of those that move; the work is linear in it.
    """
    layers: list[list[int]] = [[] for _ in range(1 + max([thing.layer for thing in things], default=-1))]
    for i, thing in enumerate(things):
        layers[thing.layer].append(i)
    layers = list(filter(None, layers))
    up: Near = [[] for _ in range(len(things) if rounds else 0)]
    down: Near = [[] for _ in up]
    for upper, lower, weight in links:
        down[upper].append((lower, weight))
        up[lower].append((upper, weight))
    _order(layers, things, links, (down, up), rounds)
    x = _moved(layers, things, up, down, rounds)
    left = min([value - thing.left for value, thing in zip(x, things, strict=True)], default=0.0)
    return [value - left for value in x]


def _order(
    layers: list[list[int]], things: Sequence[Thing], links: Sequence[Link], near: tuple[Near, Near], rounds: int
) -> None:
    """Sort each layer so that few links cross; the best of several orders wins."""
    wide = [layer for layer in layers if len(layer) > 1] if rounds else []
    if not wide:
        return
    fewest, best = _crossings(layers, things, links), [list(layer) for layer in wide]
    share = {i: (n + 0.5) / len(layer) for layer in layers for n, i in enumerate(layer)}
    keys = [thing.key or i for i, thing in enumerate(things)]
    for sweep in range(min(rounds, SWEEPS)):
        others, ours = near if sweep % 2 else near[::-1]
        for layer in reversed(wide) if sweep % 2 else wide:
            means = {}
            for i in layer:
                read = others[i] or ours[i]
                mean = sum([share[j] for j, _ in read]) / len(read) if read else share[i]
                means[i] = mean + 0.5 * things[i].leaning
            together: dict[object, list[float]] = {}
            for i in layer:
                together.setdefault(keys[i], []).append(means[i])
            group = {key: sum(values) / len(values) for key, values in together.items()}
            layer.sort(key=lambda i: (group[keys[i]], things[i].key, means[i]))
            share.update({i: (n + 0.5) / len(layer) for n, i in enumerate(layer)})
        crossed = _crossings(layers, things, links)
        if crossed < fewest:
            fewest, best = crossed, [list(layer) for layer in wide]
    for layer, order in zip(wide, best, strict=True):
        layer[:] = order


def _crossings(layers: Sequence[Sequence[int]], things: Sequence[Thing], links: Sequence[Link]) -> int:
    """The number of crossings of links."""
    at = {i: n for layer in layers if len(layer) > 1 for n, i in enumerate(layer)}
    between: dict[int, list[tuple[int, int]]] = {}
    for upper, lower, _ in links:
        if upper in at:
            between.setdefault(things[upper].layer, []).append((at[upper], at.get(lower, 0)))
    crossed = 0
    for ends in between.values():
        seen: list[int] = []
        for _, lower in sorted(ends):
            crossed += len(seen) - bisect.bisect_right(seen, lower)
            bisect.insort(seen, lower)
    return crossed


def _moved(layers: Sequence[Sequence[int]], things: Sequence[Thing], up: Near, down: Near, rounds: int) -> list[float]:
    """Centres that minimise the squared lengths of links; no two things of a layer overlap."""
    x = [0.0] * len(things)
    offsets: list[list[float]] = []
    for layer in layers if rounds else filter(lambda layer: len(layer) > 1, layers):
        row = [0.0]
        for a, b in itertools.pairwise([things[i] for i in layer]):
            row.append(row[-1] + (a.right + b.left + max(a.space, b.space)))
        for i, at in zip(layer, row, strict=True):
            x[i] = at - row[-1] / 2
        offsets.append(row)
    for move in range(min(rounds, MOVES)):
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
