"""Colouring: which columns of a sparse matrix one product with a vector shows together.

Sets of colours are whole numbers, bit c for colour c.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Indices = np.ndarray[Any, np.dtype[np.int64]]


def column_colors(rows: Indices, columns: Indices, shape: tuple[int, int]) -> Indices:
    """Colours such that no two columns of one colour have an element in the same row (Curtis, Powell and Reid 1974).

    Greedy, in two orders, of which the one with fewer colours is taken: as the columns come, and longest columns first.
    """
    of_column = _lists(columns, rows, shape[1])

    def colored(order: list[int]) -> list[int]:
        colors, used = [0] * shape[1], [0] * shape[0]
        for j in order:
            taken = 0
            for i in of_column[j]:
                taken |= used[i]
            colors[j] = _first_free(taken)
            for i in of_column[j]:
                used[i] |= 1 << colors[j]
        return colors

    return _fewest(colored, of_column)


def star_colors(rows: Indices, columns: Indices, count: int) -> Indices:
    """Colours of a symmetric matrix such that element (i, j) can be read in row i of the product for the colour of j,
    or in row j of that for the colour of i: neighbours differ, and each path of four vertices has three colours or more
    (star colouring: Coleman and Moré 1984; greedily, as Gebremedhin, Tarafdar, Manne and Pothen 2007).

    The edges between two colours form stars. A vertex may not take the colour of the centre of a star of which its
    neighbour is a tip, and where it has two neighbours of one colour, none that these have beside them.
    """
    beside = [[j for j in js if j != i] for i, js in enumerate(_lists(rows, columns, count))]

    def colored(order: list[int]) -> list[int]:
        colors = [-1] * count
        around = [0] * count  # the colours beside a vertex
        one_of: list[dict[int, int]] = [{} for _ in range(count)]  # for each of these colours a neighbour that has it
        centres = [0] * count  # the colours of the centres of those stars of which a vertex is a tip
        for v in order:
            taken, first = 0, dict[int, int]()
            for w in beside[v]:
                if colors[w] >= 0:
                    q = first.setdefault(colors[w], w)
                    taken |= 1 << colors[w] | (centres[w] if q == w else around[q] | around[w])
            color = colors[v] = _first_free(taken)
            for w in beside[v]:
                if colors[w] >= 0:
                    if color in one_of[w]:
                        centres[v] |= 1 << colors[w]
                        centres[one_of[w][color]] |= 1 << colors[w]
                    elif first[colors[w]] != w:
                        centres[w] |= 1 << color
                        centres[first[colors[w]]] |= 1 << color
                one_of[w].setdefault(color, v)
                around[w] |= 1 << color
        return colors

    return _fewest(colored, beside)


def _lists(rows: Indices, columns: Indices, count: int) -> list[list[int]]:
    """For each of `count` rows its columns."""
    result: list[list[int]] = [[] for _ in range(count)]
    for i, j in zip(rows.tolist(), columns.tolist(), strict=True):
        result[i].append(j)
    return result


def _fewest(colored: Callable[[list[int]], list[int]], beside: list[list[int]]) -> Indices:
    as_they_come = list(range(len(beside)))
    found = [colored(order) for order in (as_they_come, sorted(as_they_come, key=lambda j: -len(beside[j])))]
    return np.array(min(found, key=lambda colors: max(colors, default=0)), np.int64)


def _first_free(taken: int) -> int:
    return (~taken & (taken + 1)).bit_length() - 1
