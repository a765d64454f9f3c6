"""The row and the order of each node in a picture: a gradient is in the row of the function that it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Wiring(NamedTuple):
    """The edges: node i reads `node[start[i] : start[i + 1]]`."""

    start: Ints
    node: Ints

    @property
    def reader(self) -> Ints:
        """The reading node of each entry of `node`."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))


class Structure(NamedTuple):
    """The structure behind a layout. Nodes are in topological order, those of bodies right after their owner."""

    order: Ints
    """Order of differentiation of each node."""
    base: Ints
    """The function of order 0 at the end of its chain of origins: the node itself for order 0, -1 if unavailable."""
    rank: Ints
    """The rank of that function, even if it is not in the graph; -1 if unknown."""
    leaf: NDArray[np.bool_]
    """Whether it has no operands: leaves, parameters, constants. Such nodes are placed beside their first reader."""
    body: Ints
    """The body that contains it; -1 for none."""
    owners: Sequence[int]
    """For each body, the node that owns it; nested bodies come after those that contain them."""
    operands: Wiring

    @property
    def outermost(self) -> Ints:
        """For each node in a body the outermost owner, and for other nodes the node itself."""
        found = np.arange(len(self.order))
        if self.owners:
            inside = np.flatnonzero(self.body >= 0)
            of_body = np.array(self.owners, np.int64)
            for body, owner in enumerate(self.owners):
                if self.body[owner] >= 0:
                    of_body[body] = of_body[self.body[owner]]
            found[inside] = of_body[self.body[inside]]
        return found


class Rows(NamedTuple):
    """The rows and lanes of nodes, before coordinates."""

    row: Ints
    """The row of each node; no row is empty."""
    lane: Ints
    """The order of differentiation whose lane contains each node."""
    anchor: Ints
    """The node of the forward graph beside whose place each node lies."""
    before: Ints
    """The sort key of nodes with the same row, lane and anchor: operands first, leaves before their reader."""


def rows_and_lanes(s: Structure) -> Rows:
    """The row and the lane of each node."""
    n = len(s.order)
    first = np.full(n, -1, np.int64)
    first[s.operands.node[::-1]] = s.operands.reader[::-1]  # the last assignment wins, which is the first reader
    outermost = s.outermost
    lane = s.order[outermost]
    inside = np.flatnonzero(s.body >= 0)
    alone = np.flatnonzero(s.leaf & (s.body < 0))
    line = np.where(s.rank >= 0, s.rank + 1, -1)
    line[alone] = line[inside] = 0
    _bring_down(s, line)
    anchor = np.where(s.base >= 0, s.base, np.arange(n))
    known = (s.base >= 0) & (line > 0)
    line[known] = line[s.base[known]]
    _without_base(s, first, line, anchor)
    line[inside] = line[outermost[inside]]
    anchor[inside], anchor[alone] = inside, alone
    level = _levels(s, line, lane, anchor, outermost)
    beside = first[alone]
    read, beside = alone[beside >= 0], beside[beside >= 0]  # unread leaves stay in the top row
    for values in (line, level, lane, anchor):
        values[read] = values[beside]
    before = np.arange(n) * 2
    before[read] = beside * 2 - 1
    _, row = np.unique(line * (level.max(initial=0) + 1) + level, return_inverse=True)
    return Rows(row.reshape(-1), lane, anchor, before)


_EARLY = 4
"""Forward functions of a lower rank are only a few steps away from leaves."""


def _bring_down(s: Structure, line: Ints) -> None:
    """Move functions that are few steps away from leaves to directly above their first reader, as with leaves."""
    node, reader = s.operands.node, s.operands.reader
    forward = (s.order == 0) & (s.body < 0) & (line > 0)
    among = np.flatnonzero(forward[node] & forward[reader])
    far = np.iinfo(np.int64).max
    for early in range(_EARLY, 0, -1):  # readers first
        edges = among[line[node[among]] == early]
        latest = np.full(len(line), far)
        np.minimum.at(latest, node[edges], line[reader[edges]] - 1)
        moved = latest < far
        line[moved] = latest[moved]


def _without_base(s: Structure, first: Ints, line: Ints, anchor: Ints) -> None:
    """Place gradients of unknown origin, such as sums of gradients, midway between the known rows of their operands and
    readers."""
    is_lost = line < 0
    lost = np.flatnonzero(is_lost)
    node, reader = s.operands.node, s.operands.reader
    up, down = is_lost[reader] & (line[node] > 0), is_lost[node] & (line[reader] > 0)
    which = np.concatenate([reader[up], node[down]])
    neighbour = np.concatenate([node[up], reader[down]])
    ordered = np.lexsort((line[neighbour], which))
    starts = np.flatnonzero(np.diff(which[ordered], prepend=-1))
    middle = neighbour[ordered[starts + (np.diff(starts, append=len(which)) - 1) // 2]]
    found = which[ordered[starts]]
    line[found], anchor[found] = line[middle], anchor[middle]
    start = s.operands.start
    for i in lost.tolist():  # with only such neighbours: beside an operand, or else beside a reader
        if line[i] < 0:
            read = [j for j in node[start[i] : start[i + 1]].tolist() if line[j] > 0]
            if read:
                line[i], anchor[i] = line[read[0]], anchor[read[0]]
    for i in lost[::-1].tolist():
        if line[i] < 0:
            other = first[i]
            line[i], anchor[i] = (0, i) if other < 0 else (line[other], anchor[other])


def _levels(s: Structure, line: Ints, lane: Ints, anchor: Ints, outermost: Ints) -> Ints:
    """The rows of nodes in bodies, relative to the row of the outermost owner: each below its operands. Bodies of one
    owner lie below each other, and a nested body shares its rows with nothing else."""
    level = np.zeros(len(s.order), np.int64)
    inside = np.flatnonzero(s.body >= 0)
    if not len(inside):
        return level
    start, node = s.operands.start, s.operands.node
    first: dict[int, int] = {}
    """The first row of a body."""
    lowest: dict[int, int] = {}
    """The lowest row of a body so far, including nested ones."""
    bottom: dict[int, int] = {}
    """The lowest row of a node in a body, including its own bodies; for other nodes the lowest row of their bodies."""
    floor: dict[int, int] = {}
    """The row below which a body continues, since nested bodies lie above."""
    for i in inside.tolist():
        body = int(s.body[i])
        owner = s.owners[body]
        outer = int(s.body[owner])
        if body not in first:
            first[body] = max(bottom.get(owner, 0), lowest.get(outer, 0)) + 1
            lowest[body] = first[body]
        above = [bottom[j] for j in node[start[i] : start[i + 1]].tolist() if s.body[j] == body]
        level[i] = bottom[i] = at = max([first[body] - 1, floor.get(body, 0), *above]) + 1
        while body >= 0:
            owner, outer = s.owners[body], int(s.body[s.owners[body]])
            lowest[body] = max(lowest[body], at)
            bottom[owner] = max(bottom.get(owner, 0), at)
            if outer >= 0:
                floor[outer] = max(floor.get(outer, 0), at)
            body = outer
    # Bodies of owners in one row and lane lie below each other, with the k-th of all lanes side by side.
    turn: dict[int, int] = {}
    counts: dict[tuple[int, int], int] = {}
    heights: dict[int, list[int]] = {}
    for i in sorted({i for i in s.owners if s.body[i] < 0}, key=lambda i: (anchor[i], i)):
        at, cell = int(line[i]), (int(line[i]), int(lane[i]))
        k = turn[i] = counts.get(cell, 0)
        counts[cell] = k + 1
        of_line = heights.setdefault(at, [])
        of_line += [0] * (k + 1 - len(of_line))
        of_line[k] = max(of_line[k], bottom.get(i, 0))
    shift = {i: sum(heights[int(line[i])][:k]) for i, k in turn.items()}
    level[inside] += np.array([shift[i] for i in outermost[inside].tolist()], np.int64)
    return level


_PASSES = ("down", "up", "down")


def order_in_cells(s: Structure, rows: Rows, cell: Ints) -> Ints:
    """The nodes, cell by cell, from left to right.

    Nodes of the forward graph, which are their own anchors, lie below the middle of their operands and above the middle
    of their readers; the others lie beside their anchors, in execution order.

    Args:
        s: The structure.
        rows: Row, lane and anchor of each node.
        cell: The number of each node's cell, increasing with rows.
    """
    n = len(cell)
    place = np.zeros(n)
    own = np.flatnonzero((rows.anchor == np.arange(n)) & ~s.leaf)
    own = own[np.argsort(cell[own], kind="stable")]
    starts = np.flatnonzero(np.diff(cell[own], prepend=-1))
    sizes = np.diff(starts, append=len(own))
    if len(sizes) and sizes.max() > 1:
        inner = np.arange(len(own)) - np.repeat(starts, sizes)
        place[own] = (2 * inner + 1) / np.repeat(sizes, sizes) - 1  # within -1 to 1 in each cell
        _sweep(s, cell, own, starts[sizes > 1].tolist(), sizes[sizes > 1].tolist(), place)
    return np.lexsort((rows.before, rows.anchor, place[rows.anchor], cell))


def _sweep(s: Structure, cell: Ints, own: Ints, starts: list[int], sizes: list[int], place: np.ndarray) -> None:
    """Sort the nodes of each cell in turn by the mean place of their neighbours."""
    node, reader = s.operands.node, s.operands.reader
    is_own = np.zeros(len(cell), np.bool_)
    is_own[own] = True
    between = is_own[node] & is_own[reader] & (cell[node] != cell[reader])
    above = _neighbours(reader[between], node[between], len(cell))
    below = _neighbours(node[between], reader[between], len(cell))
    places, members = place.tolist(), own.tolist()
    cells = list(zip(starts, sizes, strict=True))
    for way in _PASSES:
        first, others = above if way == "down" else below
        for start, size in cells if way == "down" else reversed(cells):
            means = []
            for i in members[start : start + size]:
                near = others[first[i] : first[i + 1]]
                means.append((sum([places[j] for j in near]) / len(near) if near else places[i], i))
            means.sort()
            for k, (_, i) in enumerate(means):
                places[i] = (2 * k + 1) / size - 1
    place[:] = places


def _neighbours(nodes: Ints, neighbours: Ints, count: int) -> tuple[list[int], list[int]]:
    """The neighbours of each of `count` nodes: those of node i are `second[first[i] : first[i + 1]]`."""
    order = np.argsort(nodes, kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(nodes, minlength=count))])
    return first.tolist(), neighbours[order].tolist()
