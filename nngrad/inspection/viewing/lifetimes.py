"""The lifetimes of temporaries."""

from __future__ import annotations

from typing import NamedTuple

from ...extend import contained, pause_collector
from ...memory import timeline_of
from ..description import Description


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
