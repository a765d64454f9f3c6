"""Groups of nodes, for pictures that cannot show every node: each is an interval of rows in one lane.

Two groups of a lane are nested or disjoint. The scope of a row is the common scope of all functions in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...cpu.stretches import stretches_of
from ..naming import common_path
from .rows import Ints, Rows, Structure

Path = tuple[str, ...]
"""The names of a scope, the outermost first."""
LEAST_REPETITIONS = 3
_LEAST_ROWS = 6
"""The minimum number of rows in all repetitions of a block together."""
_MOST_WORDS = 4


class Labels(NamedTuple):
    """The properties by which nodes are grouped."""

    scope: Ints
    """The number of the parameter scope of each node."""
    scopes: Sequence[str]
    """Scopes such as 'conv1/bn', by number; '' for none."""
    label: Ints
    """Equal numbers for nodes with the same computation."""
    words: Sequence[str]
    """The name for nodes of each label."""
    bodies: Sequence[tuple[str, int]]
    """The title of each body, and the number of times it runs."""
    told: bool = True
    """Whether scopes were recorded when functions were applied; otherwise they were inferred from parameters, and
    functions between others of one scope are assumed to be in it."""


class Interval(NamedTuple):
    """A group: an inclusive interval of rows in one lane."""

    kind: str
    """'order', 'scope', 'block' (all its repetitions together), 'repetition' or 'body'."""
    name: str
    lane: int
    first: int
    last: int
    times: int = 1
    """The number of runs of a body, or of repetitions of a block."""


_RANKS = {"order": 0, "repetition": 1, "scope": 2, "block": 3, "body": 4}
"""The nesting of groups that have the same rows."""


def outermost_first(interval: Interval) -> tuple[int, int, int, int]:
    """A sort key that puts each group after those that contain it."""
    return interval.lane, interval.first, -interval.last, _RANKS[interval.kind]


def intervals_of(s: Structure, rows: Rows, lane: Ints, labels: Labels) -> list[Interval]:
    """The groups of all lanes, except whole lanes.

    Args:
        s: The structure.
        rows: The row of each node.
        lane: The number of each node's lane.
        labels: The properties to group by.
    """
    found: list[Interval] = []
    works = np.flatnonzero(~s.leaf)
    bodies = _bodies(s, rows, lane, labels)
    found += bodies
    for k in range(int(lane.max(initial=-1)) + 1):
        nodes = works[lane[works] == k]
        nodes = nodes[np.argsort(rows.row[nodes], kind="stable")]
        if not len(nodes):
            continue
        used, starts = np.unique(rows.row[nodes], return_index=True)
        paths = _paths(labels, nodes, starts)
        paths = paths if labels.told else _filled(paths)
        scopes = _scopes(k, used.tolist(), paths)
        spanning = [*scopes, *[b for b in bodies if b.lane == k]]
        found += scopes
        found += _blocks(k, used, _row_labels(labels, nodes, starts), spanning, (labels, nodes, starts))
    return found


def _bodies(s: Structure, rows: Rows, lane: Ints, labels: Labels) -> list[Interval]:
    count = len(s.owners)
    if not count:
        return []
    inside = np.flatnonzero(s.body >= 0)
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    np.minimum.at(first, s.body[inside], rows.row[inside])
    np.maximum.at(last, s.body[inside], rows.row[inside])
    for body in range(count - 1, -1, -1):  # a body includes the rows of nested ones
        outer = int(s.body[s.owners[body]])
        if outer >= 0:
            first[outer], last[outer] = min(first[outer], first[body]), max(last[outer], last[body])
    return [
        Interval("body", title, int(lane[s.owners[b]]), int(first[b]), int(last[b]), times)
        for b, (title, times) in enumerate(labels.bodies) if last[b] >= 0
    ]  # fmt: skip


# ---------------------------------------------------------------- scopes


def _paths(labels: Labels, nodes: Ints, starts: Ints) -> list[Path]:
    """The common scope of each row's functions, as a path."""
    parts = [tuple(path.split("/")) if path else () for path in labels.scopes]
    return [common_path([parts[i] for i in set(row)]) for row in _by_row(labels.scope[nodes], starts)]


def _filled(paths: Sequence[Path]) -> list[Path]:
    """The scopes of rows, where a row between two rows of a deeper scope is moved to that scope."""
    deeper: list[Path] = [()] * len(paths)
    waiting: list[int] = []
    for k, path in enumerate(paths):
        while waiting and len(paths[waiting[-1]]) < len(path):
            deeper[waiting.pop()] = path
        waiting.append(k)
    filled: list[Path] = []
    for path, later in zip(paths, deeper, strict=True):
        between = common_path([filled[-1], later]) if filled else ()
        filled.append(between if len(between) > len(path) and between[: len(path)] == path else path)
    return filled


def _scopes(lane: int, used: Sequence[int], paths: Sequence[Path]) -> list[Interval]:
    """The scopes of a lane; one that only contains another scope is merged with it."""
    found: dict[tuple[int, int], str] = {}
    opened: list[tuple[str, int]] = []
    before = -1
    for row, path in [*zip(used, paths, strict=True), (-1, ())]:
        same = len(common_path([tuple([name for name, _ in opened]), path]))
        for name, first in opened[same:]:
            outer = found.get((first, before))
            found[first, before] = name if outer is None else f"{outer}/{name}"
        opened = opened[:same] + [(name, row) for name in path[same:]]
        before = row
    return [Interval("scope", name, lane, first, last) for (first, last), name in found.items()]


# ---------------------------------------------------------------- blocks


def _row_labels(labels: Labels, nodes: Ints, starts: Ints) -> list[int]:
    """Equal numbers for rows of a lane whose functions do the same. Their operands may differ, since the first
    repetition of a block reads values from outside."""
    known: dict[tuple[int, ...], int] = {}
    return [known.setdefault(tuple(sorted(row)), len(known)) for row in _by_row(labels.label[nodes], starts)]


def _by_row(values: Ints, starts: Ints) -> list[list[int]]:
    """The values of each row, which begin at `starts`."""
    listed = values.tolist()
    return [listed[a:b] for a, b in itertools.pairwise([*starts.tolist(), len(listed)])]


def _blocks(
    lane: int, used: Ints, row_labels: list[int], spanning: Sequence[Interval], named: tuple[Labels, Ints, Ints]
) -> list[Interval]:
    """Blocks of repeated rows whose boundaries do not cut through other groups."""
    found: list[Interval] = []
    whole = {(each.first, each.last) for each in spanning if each.kind == "scope"}
    windows = _windows(used, spanning)
    taken = np.zeros(len(used) + 1, np.bool_)
    for stretch in stretches_of(row_labels, LEAST_REPETITIONS):
        period = stretch.period
        tried = []
        for offset in range(period):
            tried.append(_runs(range(stretch.start + offset, stretch.end + 1, period), windows, taken))
            if sum([b - a for a, b in tried[-1]]) + 2 * period > stretch.end - stretch.start:
                break  # no offset can do better
        for a, b in max(tried, key=lambda runs: sum([b - a for a, b in runs])):
            taken[a:b] = True
            times = (b - a) // period
            name = _words(*named, a, a + period)
            found.append(Interval("block", name, lane, int(used[a]), int(used[b - 1]), times))
            for k in range(times if period > 1 else 0):
                rows = int(used[a + k * period]), int(used[a + (k + 1) * period - 1])
                if rows not in whole:
                    found.append(Interval("repetition", f"{k + 1} of {times}", lane, *rows))
    return found


Window = tuple[int, int]


def _windows(used: Ints, spanning: Sequence[Interval]) -> list[Window]:
    """For each boundary between two rows of a lane, and at its ends, the extent of the innermost group it would cut."""
    windows: list[Window] = [(0, len(used))] * (len(used) + 1)
    for each in sorted(spanning, key=outermost_first):
        a, b = (int(i) for i in np.searchsorted(used, (each.first, each.last)))
        windows[a + 1 : b + 1] = [(a, b + 1)] * (b - a)
    return windows


def _runs(cuts: Sequence[int], windows: Sequence[Window], taken: NDArray[np.bool_]) -> list[Window]:
    """The longest runs of repetitions with boundaries in `cuts` that cut through no group that ends within them."""
    runs = []
    begin = 0
    while begin < len(cuts) - LEAST_REPETITIONS:
        low, high = windows[cuts[begin]]
        end = begin
        if low <= cuts[begin]:
            while end + 1 < len(cuts) and cuts[end + 1] <= high and not taken[cuts[end] : cuts[end + 1]].any():
                after = windows[cuts[end + 1]]
                if after[0] > cuts[begin] or after[1] < cuts[end + 1]:
                    break
                high = min(high, after[1])
                end += 1
        if end - begin >= LEAST_REPETITIONS and cuts[end] - cuts[begin] >= _LEAST_ROWS:
            runs.append((cuts[begin], cuts[end]))
        begin = max(end, begin + 1)
    return runs


def _words(labels: Labels, nodes: Ints, starts: Ints, first: int, end: int) -> str:
    """A short summary of the ops of some rows."""
    stop = int(starts[end]) if end < len(starts) else len(nodes)
    words = [labels.words[i] for i in labels.label[nodes[starts[first] : stop]].tolist()]
    few = words if len(words) <= _MOST_WORDS else [*words[: _MOST_WORDS - 1], "…", words[-1]]
    return ", ".join(few).replace(", …, ", " … ")
