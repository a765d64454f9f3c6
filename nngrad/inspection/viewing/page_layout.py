"""`page_layout`: the coordinates of each node of a page, and of the groups around nodes.

There is a column for each order of differentiation. Functions have the layers of pictures (`layers_of`), so a gradient
lies beside its forward function; leaves lie to the left of their first reader, and bodies below the node that owns
them. A layer takes a line, or several for bodies and for many nodes. Groups are intervals of lines, so that the page
can leave out lines of which nothing is shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..description import Description, Kind
from .groups import Interval, intervals_of, outermost_first
from .layers import Cell, Link, Thing, column_centres, layers_of, rows_of

HEIGHT = 44
"""The height of a node's box."""
_LETTER, _LEAST_WIDTH, _MOST_LETTERS = 16.2, 124, 40
"""The width of a letter of a title as high as the box, the minimum width of a box, and the most letters that fit."""
_NAME_LETTER = 14
"""The width of a letter of a group's name."""
_ROUND = Kind.LEAF, Kind.PARAMETER, Kind.CONSTANT
"""The kinds of nodes whose boxes have round ends."""
_ENDS = 20, 32
"""The part of its width that a title does not use, and that in a box with round ends."""
_GAP_X, _GAP_Y = 22, 26
_BETWEEN_COLUMNS = 90
_PADDING, _TITLE = 8, 26
"""The padding of a group's box on each side, and the additional padding at the top for its title."""
_LEAST_IN_A_LINE = 8
_REFINED = 2_000
"""The number of nodes that all passes over a column together may sort or move."""

Box = tuple[int, int, int, int]
"""Left, top, right, bottom."""


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


class PageLayout(NamedTuple):
    """The coordinates of nodes. Boxes of nodes do not overlap, and boxes of groups only if one contains the other."""

    line: list[int]
    """The line of each node, counted from the top."""
    x: list[int]
    """The centre of each node's box."""
    y: list[int]
    width: list[int]
    """The width of each node's box, in which its title fits."""
    group: list[int]
    """The innermost group that contains each node."""
    groups: list[Group]
    """The groups, each after the one that contains it."""
    columns: list[tuple[int, str, Box]]
    """The orders of differentiation, from left to right, each with a name and the box of its nodes."""


def page_layout(described: Description) -> PageLayout:
    """Compute the coordinates of each node."""
    return _Layout(described).finished()


class _Span(NamedTuple):
    """A group before coordinates."""

    kind: str
    name: str
    parent: int
    times: int
    first: int
    """Its lines, and its left and right edge."""
    last: int
    left: float
    right: float


class _Layout:
    """The layout in progress. Lines and positions of nodes in bodies are relative to those of the owner at first."""

    def __init__(self, described: Description) -> None:
        self._described = d = described
        count = len(d)
        titles = [d.op_name(i) or d.names[i].rpartition("/")[2] for i in range(count)]
        self._width = [
            max(_LEAST_WIDTH, math.ceil(_LETTER * min(len(title), _MOST_LETTERS)) + _ENDS[d.kinds[i] in _ROUND])
            for i, title in enumerate(titles)
        ]
        self._line, self._x = [0] * count, [0.0] * count
        self._left = [width / 2 for width in self._width]
        """How far a node extends to the left of its centre, with its leaves and bodies; likewise to the right."""
        self._right = self._left[:]
        self._lines = [1] * count
        """The lines that a node takes, with its bodies."""
        self._leaves: dict[int, list[int]] = {}
        """The leaves to the left of each node."""
        self._body_lines, self._body_width = [0] * len(d.bodies), [0.0] * len(d.bodies)
        self._spans: list[_Span] = []
        self._group = [-1] * count

    def finished(self) -> PageLayout:
        """The layout of the whole graph."""
        d = self._described
        for b in reversed(range(len(d.bodies))):  # nested ones first
            nodes = d.members.get(b, [])
            self._body_lines[b], columns = self._place(nodes, _cells_in_body(d, nodes))
            for width, _ in columns.values():
                self._body_width[b] = width + 2 * _PADDING
                for i in nodes:
                    self._x[i] -= width / 2
        nodes = d.members.get(-1, [])
        rows = rows_of(d, nodes)
        count, columns = self._place(nodes, {i: (rows[i], d.orders[i]) for i in nodes})
        begin = 0.0
        for order, (width, by_line) in sorted(columns.items()):
            begin = self._around_column(order, by_line, begin, width) + _BETWEEN_COLUMNS
        for b in range(len(d.bodies)):
            self._below_owner(b)
        return self._measured(sorted(columns), count)

    def _place(
        self, nodes: Sequence[int], at: Mapping[int, Cell]
    ) -> tuple[int, dict[int, tuple[float, dict[int, list[int]]]]]:
        """Set line and position of nodes that are not in each other's bodies, given their cells.

        Returns:
            The number of lines, and of each column the width and the functions by first line.
        """
        d, operands = self._described, self._described.operands
        reader = {o: i for i in reversed(nodes) for o, _ in operands[i]}
        placed: dict[int, Cell] = {}
        for i in nodes:
            if i in reader and (d.ops[i] is None or not operands[i]):
                self._leaves.setdefault(reader[i], []).append(i)
                self._left[reader[i]] += self._width[i] + _GAP_X
            else:
                placed[i] = at[i]
        for i in placed.keys() & d.bodies_of.keys():
            widest = max([self._body_width[b] / 2 for b in d.bodies_of[i]])
            self._left[i], self._right[i] = max(self._left[i], widest), max(self._right[i], widest)
            self._lines[i] += sum([self._body_lines[b] for b in d.bodies_of[i]])
        number: dict[int, int] = {}
        columns: dict[int, dict[int, list[int]]] = {}
        end = 0
        for n, row in enumerate(_narrow(layers_of(placed, operands)[0], placed)):
            for column, members in row.items():
                columns.setdefault(column, {})[end] = members
                for i in members:
                    number[i], self._line[i] = n, end
            end += max([self._lines[i] for members in row.values() for i in members])
        extents = {}
        for column, by_line in columns.items():
            members = [i for row in by_line.values() for i in row]
            extents[column] = self._across(members, number), by_line
            for i in members:
                if i in self._leaves:
                    edge = self._x[i] - self._width[i] / 2
                    for leaf in reversed(self._leaves[i]):
                        self._line[leaf], self._x[leaf] = self._line[i], edge - _GAP_X - self._width[leaf] / 2
                        edge -= _GAP_X + self._width[leaf]
        return end, extents

    def _across(self, members: Sequence[int], number: Mapping[int, int]) -> float:
        """Set the positions of the nodes of a column, from 0 on, and return its width."""
        count = len(members)
        place = {i: n for n, i in enumerate(members)} if count <= _REFINED else {}
        things = [Thing(number[i], self._left[i], self._right[i], _GAP_X) for i in members]
        links = []
        for i in place:
            for o, _ in self._described.operands[i]:
                if o in place and number[o] != number[i]:
                    upper, lower = (o, i) if number[o] < number[i] else (i, o)
                    links.append(Link(place[upper], place[lower], 1 / (number[lower] - number[upper])))
        centres = column_centres(things, links, _REFINED // count)
        for i, centre in zip(members, centres, strict=True):
            self._x[i] = centre
        return max([centre + self._right[i] for i, centre in zip(members, centres, strict=True)])

    def _around_column(self, order: int, by_line: Mapping[int, list[int]], begin: float, width: float) -> float:
        """Find the groups of a column, move it to its place, and return its right edge."""
        d, spans = self._described, self._spans
        lines = sorted(by_line)
        rows = [by_line[line] for line in lines]
        ends = [line + max([self._lines[i] for i in row]) - 1 for line, row in zip(lines, rows, strict=True)]
        left = [min([self._x[i] - self._left[i] for i in row]) for row in rows]
        right = [max([self._x[i] + self._right[i] for i in row]) for row in rows]
        name = {0: "forward", 1: "gradient"}.get(order, f"order {order}")
        intervals = sorted([Interval("order", name, 0, len(rows) - 1), *intervals_of(d, rows)], key=outermost_first)
        innermost, depth = [-1] * len(rows), [0] * len(intervals)
        base = len(spans)
        parents, lefts, rights = [], [], []
        for k, (_, _, first, last, _) in enumerate(intervals):
            parent, rest = innermost[first], slice(first, last + 1)
            depth[k] = 1 + (depth[parent - base] if parent >= 0 else 0)
            innermost[rest] = [base + k] * (last + 1 - first)
            parents.append(parent)
            lefts.append(min(left[rest]))
            rights.append(max(right[rest]))
        for k in range(len(intervals) - 1, -1, -1):  # wide enough for their names, and parents for their children
            rights[k] = max(rights[k], lefts[k] + _NAME_LETTER * (len(intervals[k].name) + 2))
            if k:
                rights[parents[k] - base] = max(rights[parents[k] - base], rights[k])
        width = max(width, rights[0])
        side = _PADDING * max(depth)
        begin += side
        for (kind, name, first, last, times), parent, a, b in zip(intervals, parents, lefts, rights, strict=True):
            spans.append(_Span(kind, name, parent, times, lines[first], ends[last], a + begin, b + begin))
        for row, group in zip(rows, innermost, strict=True):
            for i in row:
                for node in (i, *self._leaves.get(i, ())):
                    self._x[node] += begin
                    self._group[node] = group
        return begin + width + side

    def _below_owner(self, b: int) -> None:
        """Move the nodes of a body to below the node that owns it."""
        d, body, nodes = self._described, self._described.bodies[b], self._described.members.get(b, [])
        if not nodes:
            return
        owner = body.node
        x, half = self._x[owner], self._body_width[b] / 2 - _PADDING
        begin = self._line[owner] + 1 + sum([self._body_lines[other] for other in d.bodies_of[owner] if other < b])
        for i in nodes:
            self._line[i] += begin
            self._x[i] += x
            self._group[i] = len(self._spans)
        name, last = f"{body.role} of {d.op_name(owner)}", begin + self._body_lines[b] - 1
        self._spans.append(_Span("body", name, self._group[owner], body.runs, begin, last, x - half, x + half))

    def _measured(self, orders: Sequence[int], count: int) -> PageLayout:
        """The layout, once groups are known."""
        spans = self._spans
        up, down, side = _margins(spans)
        above, below = [0] * (count + 1), [0] * (count + 1)
        for span, u, low in zip(spans, up, down, strict=True):
            above[span.first] = max(above[span.first], u)
            below[span.last] = max(below[span.last], low)
        tops, top = [], 0
        for line in range(count):
            top += above[line]
            tops.append(top)
            top += HEIGHT + _GAP_Y + below[line]
        groups: list[Group] = []
        columns: list[tuple[int, str, Box]] = []
        for span, u, low, beside in zip(spans, up, down, side, strict=True):
            left, right, bottom = math.floor(span.left), math.ceil(span.right), tops[span.last] + HEIGHT
            box = left - beside, tops[span.first] - u, right + beside, bottom + low
            groups.append(Group(span.kind, span.name, span.parent, span.times, box))
            if span.kind == "order":
                columns.append((orders[len(columns)], span.name, (left, tops[span.first], right, bottom)))
        y = [tops[line] + HEIGHT // 2 for line in self._line]
        return PageLayout(self._line, [round(x) for x in self._x], y, self._width, self._group, groups, columns)


def _cells_in_body(described: Description, nodes: Sequence[int]) -> dict[int, Cell]:
    """The row of each node of a body, below the nodes of the body that it reads."""
    row: dict[int, int] = {}
    for i in nodes:
        row[i] = 1 + max([row.get(o, 0) for o, _ in described.operands[i]], default=0)
    return {i: (n, 0) for i, n in row.items()}


def _narrow(layer: Mapping[int, int], at: Mapping[int, Cell]) -> list[dict[int, list[int]]]:
    """The nodes of each layer by column, where a layer with many nodes becomes several."""
    cells: list[dict[int, list[int]]] = [{} for _ in range(1 + max(layer.values(), default=-1))]
    for i, (_, column) in at.items():
        cells[layer[i]].setdefault(column, []).append(i)
    rows: list[dict[int, list[int]]] = []
    for here in cells:
        begin = len(rows)
        for column, members in here.items():
            width = max(_LEAST_IN_A_LINE, math.isqrt(len(members)))
            for k in range(0, len(members), width):
                if begin + k // width == len(rows):
                    rows.append({})
                rows[begin + k // width][column] = members[k : k + width]
    return rows


def _margins(spans: Sequence[_Span]) -> tuple[list[int], list[int], list[int]]:
    """The margins between a group's box and its nodes: above, below, and on both sides."""
    up, down, side = [_PADDING + _TITLE] * len(spans), [_PADDING] * len(spans), [_PADDING] * len(spans)
    for k in range(len(spans) - 1, -1, -1):
        p = spans[k].parent
        if p >= 0:
            if spans[p].first == spans[k].first:
                up[p] = max(up[p], up[k] + _PADDING + _TITLE)
            if spans[p].last == spans[k].last:
                down[p] = max(down[p], down[k] + _PADDING)
            if spans[k].kind != "body":
                side[p] = max(side[p], side[k] + _PADDING)
    return up, down, side
