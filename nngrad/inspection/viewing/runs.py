"""Facts about the values of a graph: their statistics in a run, and the lifetimes of temporaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...extend import Variable, contained, interpret, on_host, pause_collector, watch
from ...memory import timeline_of
from ..description import Description
from ..nan import arrays_of_last_forward

Statistics = tuple[float | None, float | None, float | None, float | None, float, int, int]
"""Minimum, maximum, mean and standard deviation of the finite elements, None if there are none; the share of zeros; the
numbers of NaN and of infinities. Complex numbers count by their absolute values."""

FINITE, HAS_NAN, HAS_INFINITY, FIRST_NAN = range(4)


class Values:
    """Facts about values, for each node."""

    def __init__(self, described: Description) -> None:
        self._described = described
        self.statistics: list[Statistics | None] = [None] * len(described)
        """Statistics of each node's first numeric output; None if it has none, or in a body."""
        self.bad = [FINITE] * len(described)
        """For each node: 0 if its values are finite or unknown, 1 if they have NaN, 2 infinities, 3 if it made the
        first NaN."""

    def look(self, node: int, arrays: Sequence[Any]) -> None:
        """Add the arrays of a node."""
        known = [s for s in map(statistics_of, arrays) if s is not None]
        if known:
            self.statistics[node] = known[0]
            self.bad[node] = HAS_NAN if any([s[5] for s in known]) else HAS_INFINITY * any([s[6] for s in known])

    def note_first_nan(self) -> None:
        """Mark the function that made the first NaN: the first one with NaN whose operands have none."""
        for i, bad in enumerate(self.bad):
            read = [node for node, _ in self._described.operands[i]]
            if bad == HAS_NAN and all([self.bad[j] != HAS_NAN for j in read]):
                self.bad[i] = FIRST_NAN
                break


def statistics_of(array: Any) -> Statistics | None:
    """The statistics of an array; None if it has no elements or no numbers."""
    try:
        values = on_host(array)
        values = np.abs(values) if values.dtype.kind == "c" else values
        values = values if values.dtype.kind in "biuf" else values.astype(np.float32)  # such as bfloat16
    except (RuntimeError, TypeError, ValueError):  # shared with other processes, random keys, and other non-numbers
        return None
    if not values.size:
        return None
    finite = values if values.dtype.kind in "biu" else values[np.isfinite(values)]
    nan = int(np.isnan(values).sum()) if values.dtype.kind == "f" else 0
    zeros = float((values == 0).mean())
    if not finite.size:
        return None, None, None, None, zeros, nan, values.size - nan
    exact = finite.astype(np.float64)
    low, high = float(exact.min()), float(exact.max())
    scale = max(abs(low), abs(high)) or 1.0  # prevents overflow of squares
    mean, deviation = float((exact / scale).mean() * scale), float((exact / scale).std() * scale)
    return low, high, mean, deviation, zeros, nan, values.size - nan - finite.size


def values_of_run(described: Description, outputs: Sequence[Variable]) -> Values:
    """Facts about the values of a function-by-function run, from the leaves' values at the last `forward()`, or else
    their current ones."""
    seen = Values(described)
    at = {f: i for i, f in enumerate(described.functions) if f is not None}
    arrays = arrays_of_last_forward(outputs)
    for node, x in described.leaves.items():
        seen.look(node, [arrays[id(x)]])
    with watch(lambda event: seen.look(at[event.function], event.results), "ran"):
        interpret(outputs, arrays)
    seen.note_first_nan()
    return seen


class Lifetimes(NamedTuple):
    """Estimated lifetimes of temporaries, from the structure of the graph, without leaves and results."""

    live: list[int]
    """The bytes in use at each step."""
    step: list[int]
    """The node whose result is stored at each step."""
    first: list[int]
    """For each node the step that computes its result; -1 if it takes no memory of its own."""
    last: list[int]
    """For each node the last step that reads its result."""
    peak: int
    """The step with the most bytes in use; -1 if there are no steps."""


@contained
def lifetimes_of(described: Description) -> Lifetimes:
    """The lifetimes of the values of a graph."""
    pause_collector()
    line = timeline_of(described.block)
    nodes = [i for i in described.top for _ in described.specs[i]]
    first, last = [-1] * len(described), [-1] * len(described)
    for number, span in line.values.items():
        node = nodes[~number]
        first[node] = span.first if first[node] < 0 else min(first[node], span.first)
        last[node] = max(last[node], span.last)
    peak = max(range(len(line.live)), key=line.live.__getitem__, default=-1)
    return Lifetimes(line.live, [nodes[~number] for number in line.first_results], first, last, peak)
