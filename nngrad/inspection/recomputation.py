"""Which values of a graph its gradients keep, and which they rematerialise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

import nngrad.functions as F

from ..extend import Function, Variable
from ..functions.control import computed_again, input_passed_on
from ..memory import reads


class State(IntEnum):
    """How gradients treat the results of a function."""

    PLAIN = 0
    KEPT = 1
    """They are kept: a gradient reads them, or rematerialised values are computed from them."""
    AGAIN = 2
    """A gradient needs them, but rematerialises them."""
    COPY = 3
    """The function is a copy that rematerialises a value."""


def kept_for_gradients(
    functions: Iterable[Function | None],
) -> tuple[dict[Variable, bool], list[tuple[Variable, Variable]]]:
    """The values of lower orders that are kept, and those that are rematerialised instead.

    Returns:
        The values that are kept, each with whether a gradient reads it, rather than only rematerialisation. And pairs
        of a rematerialised value and the equal value that need not be kept.
    """
    retained: dict[Variable, bool] = {}
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
                retained.setdefault(x, False)
            elif order > p.order:
                retained[x] = True
    return retained, again


def states_of(functions: Sequence[Function | None], at: Mapping[Any, int]) -> list[State]:
    """The state of each function; `at` numbers them."""
    states = [State.PLAIN] * len(functions)
    retained, again = kept_for_gradients(functions)
    for x in retained:
        states[at[x.parent]] = State.KEPT
    recomputed = [(x.parent, y.parent) for x, y in again if x.parent is not None and y.parent is not None]
    for _, original in recomputed:
        states[at[original]] = State.AGAIN
    for copy, original in recomputed:
        # Copies come after their originals, and originals after their operands.
        stack = [copy]
        while stack:
            f = stack.pop()
            if f.serial > original.serial and f.order <= original.order and states[at[f]] != State.COPY:
                states[at[f]] = State.COPY
                stack += [x.parent for x in f.inputs if x.parent is not None]
    return states
