"""`layout`: coordinates of each node of a graph, in linear time.

There is a row for each rank of the forward graph, and a lane for each order of differentiation: a gradient lies beside
its forward function, and order 2 beside order 1. Nodes with the same row and lane (a cell) lie side by side, in several
lines if there are many. A layered layout would take minutes for a thousand functions and their gradients.
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
_BETWEEN_LANES = 90
_PADDING, _TITLE = 8, 14
"""The padding of a group's box on each side, and the additional padding at the top for its title."""
_ASPECT = 1.6
"""The target ratio of width to height for a cell of many nodes."""
_LEAST_IN_A_LINE = 4
_LEAST_OF_FEW, _FEW = 8, 48
"""The minimum numbers of nodes in a line, in general and for graphs of fewer rows than this."""
_ALMOST = 1.15
"""The factor by which the area with narrow lines may exceed that with a line for each cell."""
WHOLE = 3000
"""The number of nodes from which the page initially shows every repetition, since otherwise little would be visible."""


Box = tuple[int, int, int, int]
"""Left, top, right, bottom."""


class Lane(NamedTuple):
    """The nodes of one order of differentiation."""

    order: int
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
    """The line of each node, counted from the top."""
    x: Ints
    """The centre of each node's box."""
    y: Ints
    group: Ints
    """The innermost group that contains each node."""
    groups: list[Group]
    """The groups, each after the one that contains it."""
    lanes: list[Lane]
    """The orders of differentiation, from left to right."""


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
    grouped = intervals_of(structure, rows, lane, labels)
    for k, order in enumerate(orders.tolist()):
        used = np.flatnonzero(cells.sizes[:, k]).tolist()
        name = {0: "forward", 1: "gradient"}.get(order, f"order {order}")
        grouped.append(Interval("order", name, k, used[0], used[-1]))
    return _measured(cells, sorted(grouped, key=outermost_first), orders.tolist())


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
        self.in_cell = np.minimum(self.sizes, self.width)
        """The number of nodes in the longest line of each cell."""
        full = self.width[lane]
        self.column, within = place % full, place // full
        self.in_line = np.minimum(self.sizes[rows.row, lane] - within * full, full)
        """The number of nodes in each node's line."""
        self.lines = np.ceil(self.sizes / self.width).astype(np.int64).max(axis=1, initial=0)
        """The number of lines in each row."""
        self.first_line = np.cumsum(self.lines) - self.lines
        self.line = self.first_line[rows.row] + within


def _line_of(sizes: Ints) -> int:
    """The number of nodes per line of a lane with cells of these sizes: few, unless a line for each takes less room."""
    most = int(sizes.max(initial=1))
    usual = _LEAST_OF_FEW if len(sizes) < _FEW else _LEAST_IN_A_LINE
    least = max(usual, math.ceil(math.sqrt(most * _ASPECT * (HEIGHT + _GAP_Y) / (WIDTH + _GAP_X))))
    narrow, wide = (width * int(np.ceil(sizes / width).sum()) for width in (least, most))
    return least if least < most and narrow <= _ALMOST * wide else most


def _measured(cells: _Cells, grouped: list[Interval], orders: list[int]) -> Layout:
    """The layout, once groups are known."""
    rows, n = cells.count, len(cells.row)
    parents, innermost = _parents(grouped, rows, cells.lanes)
    up, down, side = _margins(grouped, parents)
    above, below = np.zeros(rows + 1, np.int64), np.zeros(rows + 1, np.int64)
    for each, u, d in zip(grouped, up, down, strict=True):
        above[each.first] = max(above[each.first], u)
        below[each.last] = max(below[each.last], d)
    steps = above[:rows] + cells.lines * (HEIGHT + _GAP_Y) + below[:rows]
    tops = np.cumsum(steps) - steps + above[:rows]
    y = tops[cells.row] + (cells.line - cells.first_line[cells.row]) * (HEIGHT + _GAP_Y) + HEIGHT // 2
    x, edges, left = np.zeros(n, np.int64), [], 0
    for k, most in enumerate(cells.in_cell.max(axis=0, initial=0).tolist()):
        nodes = np.flatnonzero(cells.lane == k)
        shift = most - cells.in_line[nodes] if k == 0 else 0  # aligns forward lines with the gradient
        x[nodes] = left + (shift + cells.column[nodes]) * (WIDTH + _GAP_X) + WIDTH // 2
        edges.append((left, left + most * (WIDTH + _GAP_X) - _GAP_X))
        left = edges[k][1] + _BETWEEN_LANES + 2 * max(side, default=0)

    def around(each: Interval) -> Box:
        """The box around the nodes of a group."""
        k, last = each.lane, each.last
        wide = int(cells.in_cell[each.first : last + 1, k].max()) * (WIDTH + _GAP_X) - _GAP_X
        west, east = (edges[k][1] - wide, edges[k][1]) if k == 0 else (edges[k][0], edges[k][0] + wide)
        tall = math.ceil(cells.sizes[last, k] / cells.width[k]) * (HEIGHT + _GAP_Y) - _GAP_Y
        return west, int(tops[each.first]), east, int(tops[last]) + tall

    lanes = [Lane(orders[each.lane], each.name, around(each)) for each in grouped if each.kind == "order"]
    groups = []
    for each, parent, u, d, beside in zip(grouped, parents, up, down, side, strict=True):
        west, north, east, south = around(each)
        box = west - beside, north - u, east + beside, south + d
        groups.append(Group(each.kind, each.name, parent, each.times, box))
    return Layout(cells.line, x, y, innermost[cells.row, cells.lane], groups, lanes)


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
