"""`layout`: coordinates of each node of a graph, in linear time.

There is a row for each rank of the forward graph, and a lane for each order of differentiation: a gradient lies beside
its forward function, and order 2 beside order 1. Nodes with the same row and lane (a cell) lie side by side, in several
lines if there are many. A tall picture is cut into bands, which stand side by side like the columns of a newspaper.
A layered layout would take minutes for a thousand functions and their gradients.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .groups import Interval, Labels, intervals_of, outermost_first
from .rows import Ints, Rows, Structure, order_in_cells, rows_and_lanes

WIDTH, HEIGHT = 208, 44
"""The size of a node's box."""
_GAP_X, _GAP_Y = 20, 26
_BETWEEN_LANES, _BETWEEN_BANDS = 90, 180
_PADDING, _TITLE = 8, 14
"""The padding of a group's box on each side, and the additional padding at the top for its title."""
_ASPECT = 1.6
"""The target ratio of width to height for a picture of many nodes."""
_LEAST_IN_A_LINE = 4
_LEAST_OF_FEW = 8
"""The minimum numbers of nodes in a line, in general and for graphs of few rows."""
_ALMOST = 1.15
"""The factor by which the area with narrow lines may exceed the least area."""
_LEAST_ROWS = 48
"""The minimum number of rows in a band."""
WHOLE = 3000
"""The number of nodes from which the page initially shows every repetition, since otherwise little would be visible."""


Box = tuple[int, int, int, int]
"""Left, top, right, bottom."""


class Lane(NamedTuple):
    """The nodes of one order of differentiation in one band."""

    order: int
    band: int
    label: str
    box: Box


class Group(NamedTuple):
    """A group of nodes."""

    kind: str
    """'order', 'scope', 'block' (all its repetitions together), 'repetition', 'body', or 'rest' for an initially
    collapsed one (`initial_view`)."""
    name: str
    parent: int
    """The group that contains it; -1 for none."""
    times: int
    """The number of runs of a body, or of repetitions of a block."""
    box: Box


class Layout(NamedTuple):
    """The coordinates of nodes. Boxes of nodes do not overlap, and boxes of groups only if one contains the other."""

    line: Ints
    """The line of each node, counted from the top through all bands."""
    column: Ints
    """The place of each node in its line, within its lane."""
    x: Ints
    """The centre of each node's box."""
    y: Ints
    group: Ints
    """The innermost group that contains each node."""
    groups: list[Group]
    """The groups, each after the one that contains it."""
    lanes: list[Lane]
    """The orders of differentiation, band by band."""


def layout(structure: Structure, labels: Labels) -> Layout:
    """Compute the coordinates of each node.

    Args:
        structure: The graph.
        labels: The properties to group by.
    """
    rows = rows_and_lanes(structure)
    orders, lane = np.unique(rows.lane, return_inverse=True)
    lane = lane.reshape(-1)
    cells = _Cells(structure, rows, lane, len(orders))
    intervals = intervals_of(structure, rows, lane, labels)
    breaks = _breaks(cells, intervals)
    grouped = _grouped(intervals, cells, breaks, orders.tolist())
    return _measured(cells, grouped, breaks, orders.tolist())


class _Cells:
    """The nodes in their cells, broken into lines."""

    def __init__(self, s: Structure, rows: Rows, lane: Ints, lanes: int) -> None:
        n = len(lane)
        self.row, self.lane, self.lanes = rows.row, lane, lanes
        self.count = int(rows.row.max(initial=-1)) + 1
        """The number of rows."""
        cell = rows.row * lanes + lane
        ordered = order_in_cells(s, rows, cell)
        sizes = np.bincount(cell, minlength=self.count * lanes)
        begins = np.cumsum(sizes) - sizes
        place = np.empty(n, np.int64)
        place[ordered] = np.arange(n) - begins[cell[ordered]]
        self.sizes = sizes.reshape(self.count, lanes)
        self.width = np.array([_line_of(self.sizes[:, k]) for k in range(lanes)], np.int64)
        """The maximum number of nodes per line in each lane."""
        full = self.width[lane]
        self.column, within = place % full, place // full
        self.in_line = np.minimum(self.sizes[rows.row, lane] - within * full, full)
        """The number of nodes in each node's line."""
        self.lines = np.ceil(self.sizes / self.width).astype(np.int64).max(axis=1, initial=0)
        """The number of lines in each row."""
        self.first_line = np.cumsum(self.lines) - self.lines
        self.line = self.first_line[rows.row] + within
        self.own = s.body


def _line_of(sizes: Ints) -> int:
    """The number of nodes per line that minimises the area of a lane with cells of these sizes."""
    most = int(sizes.max(initial=1))
    usual = _LEAST_OF_FEW if len(sizes) < _LEAST_ROWS else _LEAST_IN_A_LINE
    least = max(usual, math.ceil(math.sqrt(most * _ASPECT * (HEIGHT + _GAP_Y) / (WIDTH + _GAP_X))))
    tried = [least * 2**k for k in range(8) if least * 2**k < most] + [most]
    room = [width * int(np.ceil(sizes / width).sum()) for width in tried]
    best: int = next(width for width, its in zip(tried, room, strict=True) if its <= _ALMOST * min(room))
    return min(most, best)


def _breaks(cells: _Cells, intervals: list[Interval]) -> list[int]:
    """The first row of each band, such that the picture has the proportions of a screen, and cuts go through few
    groups."""
    lines = int(cells.lines[_shown(cells, intervals)].sum())
    wide = int(cells.width.sum()) * (WIDTH + _GAP_X) + _BETWEEN_LANES * cells.lanes + _BETWEEN_BANDS
    bands = min(round(math.sqrt(_ASPECT * lines * (HEIGHT + _GAP_Y) / wide)) if lines else 1, lines // _LEAST_ROWS)
    if bands <= 1:
        return [0]
    total = int(cells.lines.sum())
    cut = np.zeros(cells.count + 1, np.int64)
    for each in intervals:
        weight = 16 if each.kind == "body" else 1 if each.kind != "block" else 0
        cut[each.first + 1] += weight
        cut[each.last + 1] -= weight
    cut = np.cumsum(cut)
    breaks = [0]
    for k in range(1, bands):
        low, goal, high = (np.searchsorted(cells.first_line, total * (k + d) / bands) for d in (-0.12, 0, 0.12))
        tried = range(max(breaks[-1] + 1, int(low)), min(int(high) + 1, cells.count))
        if len(tried):
            breaks.append(min(tried, key=lambda row: (int(cut[row]), abs(row - int(goal)))))
    return breaks


def _shown(cells: _Cells, intervals: list[Interval]) -> Ints:
    """The initially visible rows: all except those with nothing but later repetitions of blocks."""
    seen = cells.sizes > 0
    if len(cells.row) < WHOLE:
        for each in intervals:
            if each.kind == "block":
                used = np.flatnonzero(cells.sizes[:, each.lane])
                rows = used[(used >= each.first) & (used <= each.last)]
                seen[rows[each.period :], each.lane] = False
    return np.flatnonzero(seen.any(axis=1))


def _grouped(intervals: list[Interval], cells: _Cells, breaks: list[int], orders: list[int]) -> list[Interval]:
    """The groups, each after those that contain it, including whole lanes, and split at bands."""
    ends = [*[row - 1 for row in breaks[1:]], cells.count - 1]
    found = []
    for k, order in enumerate(orders):
        used = np.flatnonzero(cells.sizes[:, k])
        for first, last in zip(breaks, ends, strict=True):
            inside = used[np.searchsorted(used, first) : np.searchsorted(used, last, side="right")]
            if len(inside):
                found.append(Interval("order", _title(order), k, int(inside[0]), int(inside[-1])))
        if len(breaks) == 1:
            found += [each for each in intervals if each.lane == k]
            continue
        for each in [each for each in intervals if each.lane == k]:
            a, b = (int(np.searchsorted(breaks, row, side="right")) - 1 for row in (each.first, each.last))
            for band in range(a, b + 1):
                part = each._replace(first=max(each.first, breaks[band]), last=min(each.last, ends[band]))
                if a != b and each.kind == "block":
                    n = np.searchsorted(used, part.last, side="right") - np.searchsorted(used, part.first)
                    part = part._replace(times=int(n) // each.period)
                if part.times > 1 or part.kind != "block":
                    found.append(part)
    return sorted(found, key=outermost_first)


def _title(order: int) -> str:
    return {0: "forward", 1: "gradient"}.get(order, f"order {order}")


def _measured(cells: _Cells, grouped: list[Interval], breaks: list[int], orders: list[int]) -> Layout:
    """The layout, once groups and bands are known."""
    rows, n = cells.count, len(cells.row)
    parents, innermost = _parents(grouped, rows, cells.lanes)
    up, down, side = _margins(grouped, parents)
    above, below = np.zeros(rows + 1, np.int64), np.zeros(rows + 1, np.int64)
    for each, u, d in zip(grouped, up, down, strict=True):
        above[each.first] = max(above[each.first], u)
        below[each.last] = max(below[each.last], d)
    band = np.searchsorted(breaks, np.arange(rows), side="right") - 1
    steps = above[:rows] + cells.lines * (HEIGHT + _GAP_Y) + below[:rows]
    tops = np.cumsum(steps) - steps
    tops -= tops[breaks][band] if rows else 0
    y = (tops + above[:rows])[cells.row] + (cells.line - cells.first_line[cells.row]) * (HEIGHT + _GAP_Y) + HEIGHT // 2
    x, lanes = np.zeros(n, np.int64), []
    band_of = band[cells.row]
    left = 0
    between = _BETWEEN_LANES + 2 * max(side, default=0)
    for b in range(len(breaks)):
        in_band = band_of == b
        for k, order in enumerate(orders):
            nodes = np.flatnonzero(in_band & (cells.lane == k))
            if not len(nodes):
                continue
            most = int(cells.in_line[nodes].max())
            shift = most - cells.in_line[nodes] if k == 0 else 0  # aligns forward lines with the gradient
            x[nodes] = left + (shift + cells.column[nodes]) * (WIDTH + _GAP_X) + WIDTH // 2
            right = left + most * (WIDTH + _GAP_X) - _GAP_X
            high, low = int(y[nodes].min()) - HEIGHT // 2, int(y[nodes].max()) + HEIGHT // 2
            lanes.append(Lane(order, b, _title(order), (left, high, right, low)))
            left = right + between
        left += _BETWEEN_BANDS
    extents = _extents(cells, x, y)
    groups = []
    for each, parent, margins in zip(grouped, parents, zip(up, down, side, strict=True), strict=True):
        west, north, east, south = _around(extents, each)
        above_it, below_it, beside = margins
        box = west - beside, north - above_it, east + beside, south + below_it
        groups.append(Group(each.kind, each.name, parent, each.times, box))
    return Layout(cells.line, cells.column, x, y, innermost[cells.row, cells.lane], groups, lanes)


def _parents(grouped: list[Interval], rows: int, lanes: int) -> tuple[list[int], Ints]:
    """The group that contains each group, and the innermost one of each row and lane."""
    innermost = np.full((rows, lanes), -1)
    parents = []
    for k, each in enumerate(grouped):
        parents.append(int(innermost[each.first, each.lane]))
        innermost[each.first : each.last + 1, each.lane] = k
    return parents, innermost


def _margins(grouped: list[Interval], parents: list[int]) -> tuple[list[int], list[int], list[int]]:
    """The margins between a group's box and its nodes: above, below, and on both sides."""
    up, down, side = ([_PADDING + _TITLE] * len(grouped), [_PADDING] * len(grouped), [_PADDING] * len(grouped))
    for k in range(len(grouped) - 1, -1, -1):
        each, p = grouped[k], parents[k]
        if p >= 0:
            if grouped[p].first == each.first:
                up[p] = max(up[p], up[k] + _PADDING + _TITLE)
            if grouped[p].last == each.last:
                down[p] = max(down[p], down[k] + _PADDING)
            side[p] = max(side[p], side[k] + _PADDING)
    return up, down, side


def _extents(cells: _Cells, x: Ints, y: Ints) -> list[Ints]:
    """Left, top, right and bottom of the boxes of nodes of each row and lane."""
    shape = (cells.count, cells.lanes)
    cell = cells.row * cells.lanes + cells.lane
    order = np.argsort(cell, kind="stable")
    starts = np.flatnonzero(np.diff(cell[order], prepend=-1))
    used = cell[order][starts]
    far = np.iinfo(np.int64).max // 2
    found = []
    for values, size, least in ((x, WIDTH, True), (y, HEIGHT, True), (x, WIDTH, False), (y, HEIGHT, False)):
        table = np.full(shape[0] * shape[1], far if least else -far)
        ufunc = np.minimum if least else np.maximum
        if len(used):
            table[used] = ufunc.reduceat(values[order], starts) + (-size if least else size) // 2
        found.append(table.reshape(shape))
    return found


def _around(extents: list[Ints], each: Interval) -> Box:
    rows = slice(each.first, each.last + 1)
    left, top, right, bottom = (table[rows, each.lane] for table in extents)
    return int(left.min()), int(top.min()), int(right.max()), int(bottom.max())
