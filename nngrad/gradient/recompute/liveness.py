"""The memory that a graph takes while it runs, predicted from shapes and dtypes.

The model is what XLA does with a graph. What it can fuse into a reader is computed there, from that function's own
sources; only a reader that must find it in memory, such as a product of matrices, or several readers of something
costly, give it memory of its own. An elementwise loop writes over an operand that it is the last to read. A
convolution reads its operands in an order of axes of its own, which takes copies. Everything lives from where it is
computed to where it is read last. Leaves and the results themselves are counted apart, as in XLA's own analysis.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from ...graph import Function, Variable
from .costs import (
    VIEWS,
    computes_operands,
    copied_operands,
    is_costly,
    is_fused,
    is_product,
    is_reduction,
    is_scaling,
    is_sum_of_many,
    multipliers,
    reads,
    tokens,
)

Value = Hashable
"""What gets memory: (function, number of its output), or a tuple that stands for a copy."""

MOST_SOURCES = 8
"""Where functions wait for others, one with more sources than this is not computed in each of several readers: what is
waited for ends the long loops into which XLA would else fuse a recurrence of elementwise functions. Found by comparison
with XLA's own account, on residual networks and LSTMs."""

_by_rank = attrgetter("rank")


class Timeline(NamedTuple):
    """A graph's temporaries over the steps of its schedule."""

    steps: list[Function | None]
    """The functions that get memory, in the order in which they run; None for what XLA adds."""
    live: list[int]
    """Bytes of temporaries while each of them runs."""
    values: dict[Value, tuple[int, int, int]]
    """For each temporary the steps at which it is made and last read, and its bytes."""

    @property
    def peak(self) -> int:
        """Most bytes that are live at once."""
        return max(self.live, default=0)


def in_order(outputs: Iterable[Variable]) -> list[Function]:
    """What `outputs` depend on, each function as late as what reads it allows: depth first, the longest way first.

    A schedule made like this keeps little alive: what is needed only near the end is computed near the end.
    """
    roots = sorted(dict.fromkeys([y.parent for y in outputs if y.parent is not None]), key=_by_rank)
    entered: set[Function] = set()
    listed: dict[Function, None] = {}
    for root in roots:
        stack = [root]
        while stack:
            f = stack[-1]
            if f in entered:
                stack.pop()
                listed.setdefault(f)
            else:
                entered.add(f)
                stack += sorted([p for x in f.inputs if (p := x.parent) is not None and p not in entered], key=_by_rank)
    return list(listed)


def timeline(outputs: Sequence[Variable]) -> Timeline:
    """The temporaries of the graph of `outputs`, in the better of two orders, depth first and by rank: XLA too tries
    several and takes the one with the lowest peak."""
    functions = in_order(outputs)
    first = _Run(outputs, functions).timeline
    second = _Run(outputs, sorted(functions, key=_by_rank)).timeline
    return min(first, second, key=lambda line: line.peak)


def predicted_peak(outputs: Sequence[Variable]) -> int:
    """Bytes of temporaries that the graph of `outputs` is predicted to take, leaves and results not counted."""
    return timeline(outputs).peak


class _Step(NamedTuple):
    function: Function | None
    made: list[tuple[Value, int]]
    """What it makes, each with its bytes."""
    read: tuple[Value, ...]
    in_place: bool
    """Whether it may write over what it is the last to read."""


class _Run:
    """One run through the functions in a given order."""

    def __init__(self, outputs: Sequence[Variable], functions: list[Function]) -> None:
        self._functions = functions
        self._results = {(y.parent, y.index) for y in outputs if y.parent is not None}
        self._through: dict[tuple[Function, int], tuple[Value, ...]] = {}
        """What a reader that fuses with a function reads in its place."""
        self._solid = self._in_memory()
        self._steps: list[_Step] = []
        self._early: list[_Step] = []
        self._seen: set[Value] = set()
        for f in functions:
            self._add(f)
        self.timeline = _walk([*self._early, *self._steps], self._results)

    def _in_memory(self) -> set[Function]:
        """The functions whose results have memory of their own."""
        readers: dict[Function, int] = {}
        for f in self._functions:
            for p in {x.parent for x in reads(f)}:
                if p is not None:
                    readers[p] = readers.get(p, 0) + 1
        self._readers = readers
        solid = {f for f in self._functions if not is_fused(f.op) and f.op not in VIEWS}
        solid |= {f for f, _ in self._results}
        solid |= {f for f, n in readers.items() if n > 1 and is_costly(f)}
        # Of what is only waited for, one element is read: XLA does not fuse a sum of arrays into that.
        awaited = [x.parent for f in self._functions for x in tokens(f)]
        self._most_sources = MOST_SOURCES if awaited else len(self._functions)
        self._awaited = {p for p in awaited if p is not None and is_sum_of_many(p)}
        solid |= self._awaited
        for f in reversed(self._functions):
            if f.op in VIEWS:
                if f in solid:
                    solid.update(p for x in reads(f) if (p := x.parent) is not None)
            elif not computes_operands(f):
                solid.update(p for x in self._operands(f) if (p := x.parent) is not None)
        return solid

    def _operands(self, f: Function) -> list[Variable]:
        """What `f`, which fuses with nothing before it, must find in memory."""
        copied = copied_operands(f)
        found: list[Variable] = []
        for k, x in enumerate(reads(f)):
            p = x.parent
            if k in copied:
                continue  # XLA fuses what comes before into the copying
            if p is not None and self._is_factor(f, p):
                found += p.inputs  # a sum of products runs like a product of matrices, on factors in memory
            else:
                found.append(x)
        return found

    def _is_factor(self, f: Function, p: Function) -> bool:
        return is_reduction(f.op) and is_product(p) and self._readers[p] == 1 and (p, 0) not in self._results

    def _sources(self, x: Variable) -> tuple[Value, ...]:
        """What a reader of `x` that may fuse with it reads."""
        return () if x.parent is None else self._through.get((x.parent, x.index), ())

    def _memory(self, x: Variable) -> tuple[Value, ...]:
        """What a reader of `x` that needs it in memory reads."""
        p = x.parent
        while p is not None and p.op in VIEWS:
            x = p.inputs[x.index if len(p.specs) > 1 else 0]
            p = x.parent
        return () if p is None else ((p, x.index),)

    def _add(self, f: Function) -> None:
        if f.op in VIEWS:
            for i in range(len(f.specs)):
                self._through[f, i] = self._sources(f.inputs[i if len(f.specs) > 1 else 0])
            return
        fused = is_fused(f.op)
        if computes_operands(f):
            read = _joined([self._sources(x) for x in f.inputs])
        else:
            read = _joined([*[self._memory(x) for x in self._operands(f)], *self._copies(f)])
        crowded = self._readers.get(f, 0) > 1 and len(read) > self._most_sources
        solid = f in self._solid or crowded
        alone = solid and (not fused or crowded or is_costly(f) or f in self._awaited)
        if solid:
            self._steps.append(_Step(f, [((f, i), s.nbytes) for i, s in enumerate(f.specs)], read, fused))
        for i in range(len(f.specs)):
            # A cheap function is computed anew by whoever fuses with it, even where it lies in memory for others.
            self._through[f, i] = ((f, i),) if alone else read

    def _copies(self, f: Function) -> list[tuple[Value, ...]]:
        """What XLA makes for `f` beside the graph's own values: operands with turned axes, and constants."""
        made: list[tuple[Value, ...]] = []
        for k, early in copied_operands(f).items():
            x = f.inputs[k]
            value = ("copy", x.parent or id(x), x.index, f.op if early else f)
            made.append((value,))
            if value not in self._seen:
                self._seen.add(value)
                step = _Step(None, [(value, x.spec.nbytes)], self._sources(x), True)
                if x.parent is None:
                    self._early.append(step)
                elif early:
                    self._steps.insert(self._place_after(step.read), step)
                else:
                    self._steps.append(step)
        for x in reads(f):
            for number in self._multipliers(f, x.parent):
                constant = ("constant", x.spec, number)
                made.append((constant,))
                if constant not in self._seen:
                    self._seen.add(constant)
                    self._early.append(_Step(None, [(constant, x.spec.nbytes)], (), False))
        return made

    def _multipliers(self, f: Function, p: Function | None) -> tuple[Any, ...]:
        """The numbers that `p` multiplies by, where `f` reduces its result: the library reads them as arrays."""
        if p is None or computes_operands(f) or not is_reduction(f.op):
            return ()
        if is_scaling(p) and self._is_factor(f, p):
            return p.arguments
        return multipliers(p)

    def _place_after(self, read: tuple[Value, ...]) -> int:
        wanted = set(read)
        for t in range(len(self._steps) - 1, -1, -1):
            if any(value in wanted for value, _ in self._steps[t].made):
                return t + 1
        return len(self._steps)


def _joined(parts: list[tuple[Value, ...]]) -> tuple[Value, ...]:
    return parts[0] if len(parts) == 1 else tuple(dict.fromkeys([value for part in parts for value in part]))


def _walk(steps: list[_Step], kept: set[tuple[Function, int]]) -> Timeline:
    """The bytes that are live at each step."""
    last: dict[Value, int] = {}
    for t, step in enumerate(steps):
        for value in step.read:
            last[value] = t
    live: list[int] = []
    values: dict[Value, tuple[int, int, int]] = {}
    now = 0
    for t, step in enumerate(steps):
        dying = [values[v][2] for v in step.read if last[v] == t and v in values]
        reusable = dying.copy() if step.in_place else []
        reused = 0
        for value, nbytes in step.made:
            if value in kept:
                continue
            values[value] = (t, last.get(value, t), nbytes)
            now += nbytes
            if nbytes in reusable:
                reusable.remove(nbytes)
                reused += nbytes
        live.append(now - reused)
        now -= sum(dying)
        now -= sum([nbytes for value, nbytes in step.made if value in values and values[value][1] == t])
    return Timeline([step.function for step in steps], live, values)
