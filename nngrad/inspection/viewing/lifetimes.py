"""Lifetimes: from which step to which each value of a graph takes memory, and how much is taken at each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...autodiff.remat import timeline
from ...execution.lower import linearize
from ...graph import Variable
from ..description import Description


class Lifetimes(NamedTuple):
    """Temporaries, by an estimate from the structure of the graph; leaves and results are not among them."""

    live: list[int]
    """Bytes that are taken at each step."""
    step: list[int]
    """The node whose result each step leaves in memory."""
    first: list[int]
    """For each node the step that makes its result; -1 for one that gets no memory of its own."""
    last: list[int]
    """The last step that reads it."""
    peak: int
    """The step at which most is taken; -1 where there is none."""


def lifetimes_of(described: Description, outputs: Sequence[Variable]) -> Lifetimes:
    """The lifetimes of the values of a graph.

    Args:
        described: The graph.
        outputs: What it was described from.
    """
    linear = linearize(outputs, effects=False, as_built=True)
    line = timeline(linear.program, as_compiled=False)  # so that values have the numbers that they have here
    at = {f: i for i, f in enumerate(described.functions) if f is not None}
    nodes = [at[f] for f in linear.functions for _ in f.specs]
    first, last = [-1] * len(described), [-1] * len(described)
    for number, span in line.values.items():
        node = nodes[~number]
        first[node] = span.made if first[node] < 0 else min(first[node], span.made)
        last[node] = max(last[node], span.last)
    peak = max(range(len(line.live)), key=line.live.__getitem__, default=-1)
    return Lifetimes(line.live, [nodes[~number] for number in line.made], first, last, peak)
