"""The memory that a graph takes while it runs, predicted from shapes and dtypes.

The model is what XLA on a CPU does with the graph's loops (loops.py). It runs first what depends on leaves alone, and
then each loop as soon as what it reads is there, in the order in which that comes about. A loop writes over what it is
the last to read, if it can. Everything lives from where it is computed to where it is read last. Leaves and results are
counted apart, as in XLA's own analysis.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from ..graph import Function, Variable, by_rank, functions_of
from .loops import Loop, Value, loops

T = TypeVar("T", bound=Hashable)


class Span(NamedTuple):
    """How long something is there."""

    made: int
    """The step of the schedule."""
    last: int
    """The step at which it is read last."""
    nbytes: int


class Timeline(NamedTuple):
    """A graph's temporaries over the steps of its schedule."""

    steps: list[Function | None]
    """The functions that get memory, in the order in which they run; None for what XLA adds."""
    live: list[int]
    """Bytes of temporaries while each of them runs."""
    values: dict[Value, Span]
    """When each temporary is made and last read, and its bytes."""

    @property
    def peak(self) -> int:
        """Most bytes that are live at once."""
        return max(self.live, default=0)


def in_order(outputs: Iterable[Variable]) -> list[Function]:
    """What `outputs` depend on, each function as late as what reads it allows: depth first, the longest way first.

    A schedule made like this keeps little alive: what is needed only near the end is computed near the end.
    """
    roots = sorted(dict.fromkeys([y.parent for y in outputs if y.parent is not None]), key=by_rank)

    def deepest_first(f: Function) -> list[Function]:
        return sorted([p for x in f.inputs if (p := x.parent) is not None], key=by_rank)[::-1]

    return _operands_first(roots, deepest_first)


def _operands_first(roots: Iterable[T], operands: Callable[[T], Iterable[T]]) -> list[T]:
    """`roots` and what they depend on, each after its operands: depth first, in the order in which these are given."""
    entered: set[T] = set()
    listed: dict[T, None] = {}
    stack = [*roots][::-1]
    while stack:
        node = stack[-1]
        if node in entered:
            stack.pop()
            listed.setdefault(node)
        else:
            entered.add(node)
            stack += [p for p in [*operands(node)][::-1] if p not in entered]
    return list(listed)


def predicted_peak(outputs: Sequence[Variable]) -> int:
    """Bytes of temporaries that the graph of `outputs` is predicted to take, leaves and results not counted."""
    return timeline(outputs).peak


def timeline(outputs: Sequence[Variable]) -> Timeline:
    """The temporaries of the graph of `outputs`."""
    listed, results = loops(outputs, functions_of(outputs))
    return _lives(_schedule(listed), results)


def _schedule(listed: list[Loop]) -> list[Loop]:
    """First come, first served: the loops in the order in which what they read is there."""
    maker = {value: n for n, loop in enumerate(listed) for value, _ in loop.made}
    readers: list[list[int]] = [[] for _ in listed]
    missing: list[int] = []
    for n, loop in enumerate(listed):
        before = {maker[value] for value in loop.read}
        missing.append(len(before))
        for m in before:
            readers[m].append(n)
    ready = deque([n for n, count in enumerate(missing) if not count])
    order: list[Loop] = []
    while ready:
        n = ready.popleft()
        order.append(listed[n])
        for reader in readers[n]:
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    return order


def _lives(steps: list[Loop], results: dict[Value, None]) -> Timeline:
    """The bytes that are live at each step."""
    spans: dict[Value, Span] = {}
    for t, step in enumerate(steps):
        for value, nbytes in step.made:
            spans[value] = Span(t, t, nbytes)
        for value in step.read:
            spans[value] = spans[value]._replace(last=t)
    elsewhere = _in_results(spans, results, steps)
    values = {value: span for value, span in spans.items() if value not in elsewhere}
    live: list[int] = []
    now = 0
    for t, step in enumerate(steps):
        dying = [v for v in step.read if v in values and values[v].last == t]
        reusable = [values[v].nbytes for v in dying if step.read[v]]
        made = [value for value, _ in step.made if value in values]
        now += sum([values[v].nbytes for v in made])
        reused = 0
        for v in made:
            if values[v].nbytes in reusable:
                reusable.remove(values[v].nbytes)
                reused += values[v].nbytes
        live.append(now - reused)
        now -= sum([values[v].nbytes for v in dying]) + sum([values[v].nbytes for v in made if values[v].last == t])
    return Timeline([step.function for step in steps], live, values)


def _in_results(spans: dict[Value, Span], results: dict[Value, None], listed: list[Loop]) -> set[Value]:
    """The results, and what lies in their memory before they are computed.

    The largest come first, and each goes to the smallest result with room for it, the last one among equals.
    """
    reads = {value: loop.read for loop in listed for value, _ in loop.made}
    depth = {value: n for n, value in enumerate(_operands_first(results, reads.__getitem__))}
    # Outputs that nobody reads come last.
    ordered = sorted(spans, key=lambda v: (-spans[v].nbytes, depth.get(v, len(spans))))
    places = [v for v in ordered if v in results][::-1]
    sizes = np.array([spans[v].nbytes for v in places])
    until = np.array([spans[v].made for v in places])
    taken = [0] * len(places)
    """Of each place, the steps at which it is taken, as the bits of a number."""
    found = set(results)
    for value in ordered:
        made, last, nbytes = spans[value]
        if value not in results:
            steps = ((2 << last - made) - 1) << made
            for place in np.flatnonzero((sizes >= nbytes) & (until > last)).tolist():
                if not taken[place] & steps:
                    taken[place] |= steps
                    found.add(value)
                    break
    return found
