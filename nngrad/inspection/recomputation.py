"""Which values of a graph its gradients keep, and which they rematerialise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

import nngrad.functions as F

from ..autodiff.remat import reads
from ..functions.control import computed_again, input_passed_on
from ..graph import Function, Variable


class State(IntEnum):
    """What gradients do with the results of a function."""

    PLAIN = 0
    KEPT = 1
    """A gradient reads them, so they are kept for it; or others are computed from them again."""
    AGAIN = 2
    """A gradient would read them, but they are computed again for it."""
    COPY = 3
    """The function is one that computes something again."""


def kept_for_gradients(
    functions: Iterable[Function | None],
) -> tuple[dict[Variable, bool], list[tuple[Variable, Variable]]]:
    """The values of lower orders that are kept, and those that are rematerialised instead.

    Returns:
        The values that are kept, each with whether a gradient reads it; else others are computed from it again. And the
        values that are computed again, each before the equal one that need not be kept for it.
    """
    kept: dict[Variable, bool] = {}
    again = []
    for f in functions:
        pair = None if f is None else computed_again(f)
        if pair is not None:
            again.append(pair)
        if f is None or pair is not None:
            continue
        order, barrier, marked = f.order, f.op is F.optimization_barrier, f.mark is not None
        for x in reads(f) if order or barrier or marked else ():
            p = x.parent
            if p is None or not p.inputs or input_passed_on(p.op) is not None:
                continue
            if barrier or (marked and p.mark is None):
                kept.setdefault(x, False)
            elif order > p.order:
                kept[x] = True
    return kept, again


def states_of(functions: Sequence[Function | None], at: Mapping[Any, int]) -> list[State]:
    """The state of each function; `at` numbers them."""
    states = [State.PLAIN] * len(functions)
    kept, again = kept_for_gradients(functions)
    for x in kept:
        states[at[x.parent]] = State.KEPT
    recomputed = [(x.parent, y.parent) for x, y in again if x.parent is not None and y.parent is not None]
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
