"""Groups of nodes, for pictures that cannot show every node: each is an interval of rows in one column.

Two groups of a column are nested or disjoint. The scope of a row is the common scope of all functions in it. A block is
a sequence of rows and scopes within one scope that repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...cpu.stretches import stretches_of
from ..description import Description
from ..naming import common_path

_LEAST_REPETITIONS, _LEAST_ROWS = 3, 6
"""The minimum numbers of repetitions of a block, and of rows in all of them together."""
_MOST_WORDS = 4


class Interval(NamedTuple):
    """A group: an inclusive interval of rows in one column."""

    kind: str
    """'order', 'scope', 'block' (all its repetitions together) or 'repetition'."""
    name: str
    first: int
    last: int
    times: int = 1
    """The number of repetitions of a block."""


_RANKS = {"order": 0, "repetition": 1, "scope": 2, "block": 3}
"""The nesting of groups that have the same rows."""


def outermost_first(interval: Interval) -> tuple[int, int, int]:
    """A sort key that puts each group of a column after those that contain it."""
    return interval.first, -interval.last, _RANKS[interval.kind]


_Item = tuple[int, int, int]
"""A row, or a scope with its rows: a label, and the first and the last row. Labels are equal for items that do the
same. Their operands may differ, since the first repetition of a block reads values from outside."""


def intervals_of(described: Description, rows: Sequence[Sequence[int]]) -> list[Interval]:
    """The groups within a column.

    Args:
        described: The graph.
        rows: The functions in each row.
    """
    known: dict[Any, int] = {}
    scopes: dict[tuple[int, int], str] = {}
    intervals: list[Interval] = []
    opened: list[tuple[str, list[_Item]]] = [("", [])]
    parts = {scope: tuple(scope.split("/")) if scope else () for scope in set(described.scopes)}
    paths = [common_path({parts[described.scopes[i]] for i in row}) if len(row) > 1 else parts[described.scopes[row[0]]]
             for row in rows]  # fmt: skip
    if not any(described.locations):  # scopes were inferred from parameters, not recorded as functions were applied
        paths = _filled(paths)
    for n, (row, before, path) in enumerate(zip([*rows, ()], [(), *paths], [*paths, ()], strict=True)):
        same = len(path if path == before else common_path({before, path}))
        while len(opened) > same + 1:
            name, items = opened.pop()
            intervals += _blocks(described, rows, items)
            span = items[0][1], n - 1
            inner = scopes.get(span)  # a scope that contains nothing but another one is merged with it
            scopes[span] = name if inner is None else f"{name}/{inner}"
            opened[-1][1].append((known.setdefault(tuple([label for label, _, _ in items]), len(known)), *span))
        opened += [(name, []) for name in path[same:]]
        functions = [known.setdefault((described.ops[i], described.specs[i]), len(known)) for i in row]
        opened[-1][1].append((known.setdefault((None, *sorted(functions)), len(known)), n, n))
    intervals += _blocks(described, rows, opened[0][1][:-1])
    return [*intervals, *[Interval("scope", name, *span) for span, name in scopes.items()]]


def _filled(paths: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The scopes of rows, where a row between two rows of a deeper scope is moved to that scope."""
    deeper: list[tuple[str, ...]] = [()] * len(paths)
    waiting: list[int] = []
    for k, path in enumerate(paths):
        while waiting and len(paths[waiting[-1]]) < len(path):
            deeper[waiting.pop()] = path
        waiting.append(k)
    filled: list[tuple[str, ...]] = []
    for path, later in zip(paths, deeper, strict=True):
        before, depth = filled[-1] if filled else (), len(path)
        deep = () != before[depth : depth + 1] == later[depth : depth + 1] and before[:depth] == path == later[:depth]
        filled.append(common_path({before, later}) if deep else path)
    return filled


def _blocks(described: Description, rows: Sequence[Sequence[int]], items: Sequence[_Item]) -> list[Interval]:
    """The repeated blocks in a scope."""
    blocks: list[Interval] = []
    if len(items) < _LEAST_REPETITIONS:
        return blocks
    taken = bytearray(len(items))
    for stretch in stretches_of([label for label, _, _ in items], _LEAST_REPETITIONS):
        period = stretch.period
        for start, end in stretch.free_parts(taken, _LEAST_REPETITIONS):
            times = (end - start) // period
            members = items[start : start + times * period]
            if members[-1][2] - members[0][1] + 1 < _LEAST_ROWS:
                continue
            taken[start : start + times * period] = b"\1" * (times * period)
            spans = [(members[k * period][1], members[(k + 1) * period - 1][2]) for k in range(times)]
            words = [described.op_name(i) for row in rows[spans[0][0] : spans[0][1] + 1] for i in row]
            few = words if len(words) <= _MOST_WORDS else [*words[: _MOST_WORDS - 1], "…", words[-1]]
            name = ", ".join(few).replace(", …, ", " … ")
            blocks.append(Interval("block", name, members[0][1], members[-1][2], times))
            blocks += [Interval("repetition", f"{k + 1} of {times}", *span)
                      for k, span in enumerate(spans if period > 1 else ())]  # fmt: skip
    return blocks
