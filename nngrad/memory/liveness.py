"""The memory of a running program, estimated from its structure: from shapes, dtypes and declared facts of its ops.


It ranks programs; the compiler reports what one of them really takes (`temporary_bytes`). The rules hold for any
compiler that fuses loops:

- Elementwise operations are computed within the loops that read them, unless something must find them in memory.
- A costly operation, or a sum of several arrays, gets a buffer of its own if several functions read it.
- First come, first served: each loop runs as soon as its inputs are computed.
- A function with bodies takes as much as the largest of them, and stacks no values that nobody reads.
- A loop overwrites an input that it is the last to read, if it can; and a result's buffer serves other values until the
  result is computed.

Leaves and results are counted separately, as compilers do.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..extend import (
    Block,
    Call,
    ControlOp,
    Op,
    Program,
    Spec,
    Variable,
    linearize,
    operands_first,
    prepared,
)
from .plan import is_costly
from .thresholds import MOST_READ


class LoopSteps(NamedTuple):
    """An operation, or several fused ones, that runs as one."""

    results: dict[int, int]
    """The sizes of its results in bytes, by the number of the value."""
    read: dict[int, bool]
    """Its inputs in memory, and whether it may overwrite each: if it reads each element only to compute the one at the
    same place."""
    inner: int = 0
    """Additional bytes while it runs, for bodies inside it."""


class Span(NamedTuple):
    """The lifetime of a value."""

    first: int
    """The step of the schedule that computes it."""
    last: int
    """The step at which it is last read."""
    nbytes: int


class Timeline(NamedTuple):
    """A program's temporaries over the steps of its schedule."""

    live: list[int]
    """Bytes of temporaries while each of them runs."""
    values: dict[int, Span]
    """The lifetime of each temporary, by its number in the program."""
    first_results: list[int]
    """The number of the first value that each step leaves in memory."""

    @property
    def peak(self) -> int:
        """The most bytes that are live at once."""
        return max(self.live, default=0)


def timeline(program: Program) -> Timeline:
    """The temporaries of a program, as its platform's compiler gets it, where values have other numbers."""
    return timeline_of(prepared(program).block)


def timeline_of(block: Block) -> Timeline:
    """The temporaries of a block, whose values keep their numbers."""
    loops, results = _loops(block)
    return _lives(_schedule(loops), results)


def peak_bytes(outputs: list[Variable]) -> int:
    """Implements `engine.peak_bytes`."""
    return timeline(linearize(outputs).program).peak


@functools.lru_cache(maxsize=4096)
def _peak_of(body: Block) -> int:
    """Bytes of temporaries of a body while it runs. The passes for a platform do not look into bodies."""
    return timeline_of(body.with_bodies_inline()).peak


# ---------------------------------------------------------------- loops


def _loops(block: Block) -> tuple[list[LoopSteps], list[int]]:
    """The loops, in topological order; and the results that they compute."""
    specs = block.spec_by_number
    computing, outputs = block.without_identities()
    calls = _read_calls(computing, outputs)  # some values of an inlined checkpoint are unread
    held: dict[int, int] = {}
    """For views: the value whose buffer they share."""
    for call in calls:
        if call.op.view:
            held.update([(o, held.get(i, i)) for i, o in zip(call.ins, call.outs, strict=False)])
    results = dict.fromkeys([held.get(i, i) for i in outputs])
    in_memory = {*results, *[held.get(i, i) for c in calls if not _is_loop(c.op) for i in c.ins]}
    readers: dict[int, int] = {}
    for call in calls:
        for i in set(call.ins):
            readers[i] = readers.get(i, 0) + 1
    loops: list[LoopSteps] = []
    through: dict[int, dict[int, bool]] = {i: {} for i in range(len(block.inputs))}
    """The inputs of a loop that reads a value, by value."""
    for call in calls:
        op, arguments, ins, outs = call
        in_place = op.view or op.fuses == "in place"
        read: dict[int, bool] = {}
        for i in ins:
            for j, same_place in through[i].items():
                read[j] = read.get(j, True) and same_place and in_place
        if op.view or not (
            not op.fuses
            or not in_memory.isdisjoint(outs)
            or len(read) > MOST_READ
            or (max([readers.get(o, 0) for o in outs]) > 1 and _is_worth_keeping(call, specs))
        ):
            through.update(dict.fromkeys(outs, read))
        elif isinstance(op, ControlOp):
            wanted = [bool(readers.get(o)) or o in in_memory for o in outs]
            inner = max([_peak_of(body) for body in op.running(arguments, wanted)], default=0)
            sizes = {o: specs[o].nbytes for o, is_wanted in zip(outs, wanted, strict=True) if is_wanted}
            loops.append(LoopSteps(sizes, read, inner))
            through.update({o: {o: True} for o in outs})
        else:
            loops.append(LoopSteps({o: specs[o].nbytes for o in outs}, read))
            through.update({o: {o: True} for o in outs})
    return loops, [i for i in results if i < 0]


def _read_calls(calls: Sequence[Call], outputs: Iterable[int]) -> list[Call]:
    """The calls that `outputs` depend on, in order; compilers drop the others."""
    read, needed = set(outputs), []
    for call in reversed(calls):
        if not read.isdisjoint(call.outs):
            read.update(call.ins)
            needed.append(call)
    return needed[::-1]


def _is_loop(op: Op) -> bool:
    """True for an op that can compute its inputs inside its loop."""
    return bool(op.fuses or op.reduction or op.view)


def _is_worth_keeping(call: Call, specs: dict[int, Spec]) -> bool:
    """True where the call's result is kept rather than computed in each reader: it is costly, or a sum that would
    otherwise keep several arrays alive."""
    size = specs[call.outs[0]].size
    if call.op.is_sum and len({i for i in call.ins if specs[i].size == size}) > 1:
        return True
    return is_costly(call.op, call.arguments, [specs[i] for i in call.ins])


def _schedule(loops: list[LoopSteps]) -> list[LoopSteps]:
    """First come, first served: the loops in the order in which their inputs become available."""
    maker = {i: n for n, loop in enumerate(loops) for i in loop.results}
    readers: list[list[int]] = [[] for _ in loops]
    missing: list[int] = []
    for n, loop in enumerate(loops):
        before = {maker[i] for i in loop.read}
        missing.append(len(before))
        for m in before:
            readers[m].append(n)
    ready = deque([n for n, count in enumerate(missing) if not count])
    order: list[LoopSteps] = []
    while ready:
        n = ready.popleft()
        order.append(loops[n])
        for reader in readers[n]:
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    return order


# ---------------------------------------------------------------- lives


def _lives(steps: list[LoopSteps], results: Sequence[int]) -> Timeline:
    """The bytes that are live at each step."""
    last = {i: t for t, step in enumerate(steps) for i in (*step.results, *step.read)}
    spans = {i: Span(t, last[i], nbytes) for t, step in enumerate(steps) for i, nbytes in step.results.items()}
    elsewhere = _in_results(spans, results, steps)
    values = {i: span for i, span in spans.items() if i not in elsewhere}
    live: list[int] = []
    now = 0
    for t, step in enumerate(steps):
        reusable: list[int] = []
        new = dying = reused = 0
        for i, in_its_place in step.read.items():
            if i in values and values[i].last == t:
                nbytes = values[i].nbytes
                dying += nbytes
                if in_its_place:
                    reusable.append(nbytes)
        for i in step.results:
            if i in values:
                nbytes = values[i].nbytes
                new += nbytes
                dying += nbytes if values[i].last == t else 0
                if nbytes in reusable:
                    reusable.remove(nbytes)
                    reused += nbytes
        live.append(now + new - reused + step.inner)
        now += new - dying
    return Timeline(live, values, [next(iter(step.results)) for step in steps])


def _in_results(spans: dict[int, Span], results: Sequence[int], steps: list[LoopSteps]) -> set[int]:
    """The results, and the values that occupy their buffers before they are computed.

    Large values come first; each goes to the smallest result with room for it, the last one among equals.
    """
    elsewhere = set(results)
    reads = {i: step.read for step in steps for i in step.results}
    depth = {i: n for n, i in enumerate(operands_first(results, reads.__getitem__))}
    # Outputs that nobody reads come last.
    ordered = sorted(spans, key=lambda i: (-spans[i].nbytes, depth.get(i, len(spans))))
    places = [i for i in ordered if i in elsewhere][::-1]
    sizes = [spans[i].nbytes for i in places]
    occupied = _Occupied(len(steps))
    for place, i in enumerate(places):
        occupied.add(1 << place, spans[i].first, len(steps) - 1)
    for i in ordered:
        first, last, nbytes = spans[i]
        smallest = bisect_left(sizes, nbytes)
        if i in elsewhere or smallest == len(places):
            continue
        taken = occupied.during(first, last) >> smallest
        place = smallest + (~taken & (taken + 1)).bit_length() - 1  # the lowest bit that is not set
        if place < len(places):
            occupied.add(1 << place, first, last)
            elsewhere.add(i)
    return elsewhere


class _Occupied:
    """The occupied places at each step, as bits, in a segment tree: a span takes the logarithm of the number of steps.

    The spans of nodes `2 n` and `2 n + 1` make that of node `n`; the last nodes have a step each.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._somewhere, self._throughout = [0] * (2 * steps), [0] * (2 * steps)
        """The places occupied at some step of a node, and those added for all of its steps at once."""

    def add(self, place: int, first: int, last: int) -> None:
        """Occupy a place, a single bit, from one step to another."""
        whole, part = self._nodes(first, last)
        for n in whole:
            self._throughout[n] |= place
            self._somewhere[n] |= place
        for n in part:
            self._somewhere[n] |= place

    def during(self, first: int, last: int) -> int:
        """The places that are occupied at some step from one to another."""
        whole, part = self._nodes(first, last)
        places = 0
        for n in whole:
            places |= self._somewhere[n]
        for n in part:
            places |= self._throughout[n]
        return places

    def _nodes(self, first: int, last: int) -> tuple[list[int], list[int]]:
        """The nodes that make a span, and those above its ends, in which all that are above the former are."""
        low, high = first + self._steps, last + self._steps
        part = [n >> k for n in {low, high} for k in range(1, n.bit_length())]
        whole = []
        high += 1
        while low < high:
            if low & 1:
                whole.append(low)
                low += 1
            if high & 1:
                high -= 1
                whole.append(high)
            low, high = low >> 1, high >> 1
        return whole, part
