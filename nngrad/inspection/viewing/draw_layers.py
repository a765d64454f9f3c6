"""The layer of each box of a drawing: layers lie below each other, and what is in one does not overlap.

A box is in the row of the forward function that it comes from, and in the column of its order of differentiation. What
is in one row and one column (a cell) depends on each other, and takes several layers: downwards in the forward column,
upwards where gradients come from below. In each column rows lie below each other, and all cells of a row reach one
line; so a gradient is beside its forward. A leaf is a layer before its first reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .draw_contents import Box, DrawingContents

Cell = tuple[int, int]
"""A row and a column."""


class DrawingLayers(NamedTuple):
    """Where boxes are, in whole numbers."""

    layer: tuple[int, ...]
    """For each box, counted from the top."""
    column: tuple[int, ...]
    """For each box, counted from the left."""
    orders: tuple[int, ...]
    """The order of differentiation of each column."""


def layers_of(contents: DrawingContents) -> DrawingLayers:
    """The layers and columns of boxes."""
    boxes, arrows, by_order = contents
    orders = sorted({box.order for box in boxes}) if by_order else [0]
    column = [orders.index(box.order) if by_order else 0 for box in boxes]
    floating = [_is_leaf(box) for box in boxes]
    readers: list[list[int]] = [[] for _ in boxes]
    operands: list[list[int]] = [[] for _ in boxes]
    for source, target in arrows:
        readers[source].append(target)
        operands[target].append(source)
    cells: dict[Cell, list[int]] = {}
    for i, box in enumerate(boxes):
        if not (floating[i] and readers[i]):
            cells.setdefault((box.row, column[i]), []).append(i)
    depth = _depths(cells, operands)
    upwards = {cell: by_order and cell[1] > 0 and _comes_from_below(cell, members, boxes, column, operands)
               for cell, members in cells.items()}  # fmt: skip
    layer = [0] * len(boxes)
    free = [0] * len(orders)
    for row in sorted({row for row, _ in cells}):
        here = [cell for cell in sorted(cells) if cell[0] == row]
        # The row lies where each column has room for it; what is higher goes up beside rows before, if these let it.
        line = max([free[c] for _, c in here])
        placed: dict[int, int] = {}
        for cell in here:
            members, c = cells[cell], cell[1]
            height = 1 + max([depth[i] for i in members])
            within = {i: height - 1 - depth[i] if upwards[cell] else depth[i] for i in members}
            begin = _best_begin(range(max(free[c], line - height + 1), line + 1), within, placed, operands, readers)
            placed.update({i: begin + at for i, at in within.items()})
            free[c] = begin + height
        for i, at in placed.items():
            layer[i] = at
    for i in reversed(range(len(boxes))):  # readers come after what they read
        if floating[i] and readers[i]:
            first = min(readers[i], key=lambda r: (column[r], layer[r]))
            cell = (boxes[first].row, column[first])
            column[i] = column[first]
            layer[i] = layer[first] + (1 if upwards.get(cell) else -1)
    used = sorted(set(layer))
    at_place = {old: new for new, old in enumerate(used)}
    return DrawingLayers(tuple([at_place[n] for n in layer]), tuple(column), tuple(orders))


def _is_leaf(box: Box) -> bool:
    return box.kind in ("leaf", "parameter", "constant")


def _depths(cells: Mapping[Cell, Sequence[int]], operands: Sequence[Sequence[int]]) -> dict[int, int]:
    """How many functions of its cell each box depends on, along the longest way."""
    depth: dict[int, int] = {}
    for members in cells.values():
        inside = set(members)
        for i in members:
            # Folded parts may read each other: what comes later in the list counts for nothing.
            depth[i] = 1 + max([depth.get(o, -1) for o in operands[i] if o in inside], default=-1)
    return depth


def _comes_from_below(
    cell: Cell, members: Sequence[int], boxes: Sequence[Box], column: Sequence[int], operands: Sequence[Sequence[int]]
) -> bool:
    """Whether most of what a cell reads of its own column is in rows below it; so it is where nothing tells."""
    rows = [boxes[o].row for i in members for o in operands[i] if column[o] == cell[1] and not _is_leaf(boxes[o])]
    below, above = sum([row > cell[0] for row in rows]), sum([row < cell[0] for row in rows])
    return below >= above


def _best_begin(
    begins: range, within: Mapping[int, int], placed: Mapping[int, int], operands: Sequence[Sequence[int]],
    readers: Sequence[Sequence[int]],
) -> int:  # fmt: skip
    """The layer at which a cell begins so that arrows to what is placed in its row are short; the first of several."""
    ends = [(i, o) for i in within for o in (*operands[i], *readers[i]) if o in placed]
    return min(begins, key=lambda begin: sum([abs(within[i] + begin - placed[o]) for i, o in ends]))
