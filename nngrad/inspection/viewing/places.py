"""The order of nodes within their cells: what is read lies above its readers, as far as a few sweeps bring it there."""

from __future__ import annotations

import numpy as np

from .rows import Ints, Rows, Structure

_PASSES = ("down", "up", "down")


def order_in_cells(s: Structure, rows: Rows, cell: Ints) -> Ints:
    """The nodes, cell by cell, in each from left to right.

    Nodes that stand for themselves, which is the forward graph, lie below the middle of what they read, and above that
    of their readers; the others beside those that they come from, in the order in which they run.

    Args:
        s: The structure.
        rows: Row, lane and anchor of each node.
        cell: The number of each node's cell, rising with rows.
    """
    n = len(cell)
    place = np.zeros(n)
    own = np.flatnonzero((rows.anchor == np.arange(n)) & ~s.leaf)
    own = own[np.argsort(cell[own], kind="stable")]
    starts = np.flatnonzero(np.diff(cell[own], prepend=-1))
    sizes = np.diff(starts, append=len(own))
    if len(sizes) and sizes.max() > 1:
        inner = np.arange(len(own)) - np.repeat(starts, sizes)
        place[own] = (2 * inner + 1) / np.repeat(sizes, sizes) - 1  # each cell's between -1 and 1
        _sweep(s, cell, own, starts[sizes > 1].tolist(), sizes[sizes > 1].tolist(), place)
    return np.lexsort((rows.before, rows.anchor, place[rows.anchor], cell))


def _sweep(s: Structure, cell: Ints, own: Ints, starts: list[int], sizes: list[int], place: np.ndarray) -> None:
    """Sort the nodes of each cell that has several by the middle of their neighbours, cell after cell."""
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
