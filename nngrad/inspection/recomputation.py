"""What a gradient keeps of a graph, and what it computes again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

import nngrad.functions as F

from ..autodiff.remat import reads
from ..graph import Function


class State(IntEnum):
    """What becomes of the results of a function."""

    PLAIN = 0
    KEPT = 1
    """A gradient reads them, so they are kept for it; or others are computed from them again."""
    AGAIN = 2
    """A gradient would read them, but they are computed again for it."""
    COPY = 3
    """The function is one that computes something again."""


def states_of(functions: Sequence[Function | None], at: Mapping[Any, int]) -> list[State]:
    """The state of each function; `at` has their numbers."""
    states = [State.PLAIN] * len(functions)
    recomputed: list[tuple[Function, Function]] = []
    for f in functions:
        if f is None:
            continue
        if f.op is F.recomputed:
            copy, original = f.inputs[0].parent, f.inputs[1].parent
            if copy is not None and original is not None:
                recomputed.append((copy, original))
            continue
        order, barrier, marked = f.order, f.op is F.optimization_barrier, f.mark is not None
        if not order and not barrier and not marked:
            continue
        for x in reads(f):
            p = x.parent
            if p is None or not p.inputs or p.op in (F.recomputed, F.optimization_barrier):
                continue
            if barrier or (marked and p.mark is None) or order > p.order:
                states[at[p]] = State.KEPT
    for _, original in recomputed:
        states[at[original]] = State.AGAIN
    for copy, original in recomputed:
        # A copy is made after all that it copies, and what it copies after all that this is computed from.
        stack = [copy]
        while stack:
            f = stack.pop()
            if f.serial > original.serial and f.order <= original.order and states[at[f]] != State.COPY:
                states[at[f]] = State.COPY
                stack += [x.parent for x in f.inputs if x.parent is not None]
    return states
