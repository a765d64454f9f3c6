"""Rematerialisation plans: what a gradient recomputes, and when; and costs of functions, from shapes and dtypes alone.

Whoever chose it, a plan has one form: the segment of the forward pass that each function belongs to, the functions
whose results are not kept, and the nesting of the segments. `rebuild.py` builds the gradient that follows it. The cost
of a cut between segments is the values that cross it: those computed before it and read after it must be kept, or
recomputed themselves.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from ..extend import Function, Op, Spec, Variable, operands_first, spec_of
from ..functions.control import input_passed_on
from ..functions.traced import primitives_in

_COSTLY = frozenset({
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "div", "erf", "exp", "expm1", "log",
    "log1p", "logistic", "pow", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh",
})  # fmt: skip
"""Primitives that take several times the arithmetic of a product per element."""


def reads(f: Function) -> tuple[Variable, ...]:
    """The inputs that `f` computes its outputs from: not those that only determine when, or whose gradient it carries,
    or that it also forwards."""
    return f.inputs[: 1 if f.op.forwards_inputs else f.op.reads]


def arithmetic(f: Function) -> int:
    """The approximate number of additions and multiplications of `f`."""
    op = f.op
    if op.cost is not None:
        return op.cost(f) if f.heavy else 8 * max([s.size for s in f.specs] + [x.size for x in f.inputs])
    if op.view or input_passed_on(op) is not None:
        return 0
    elements = max([f.specs[0].size, *[x.size for x in f.inputs]])
    return (8 if is_costly(op, f.arguments, [x.spec for x in f.inputs]) else 1) * elements


def is_costly(op: Op, arguments: tuple[Any, ...], inputs: Sequence[Spec]) -> bool:
    """True if `op` takes several times the arithmetic of a product per element."""
    if op.fuses == "moving":
        return False
    # One element stands for all where the op is diagonal.
    specs = [spec_of((), s.dtype) for s in inputs] if op.diagonal else inputs
    return not _COSTLY.isdisjoint(_primitives(op, arguments, tuple(specs)))


@functools.lru_cache(maxsize=1 << 12)
def _primitives(op: Op, arguments: tuple[Any, ...], inputs: tuple[Spec, ...]) -> frozenset[str]:
    """The primitives in an op's jaxpr."""
    return frozenset(primitives_in(op.jaxpr(arguments, inputs)))


def in_order(outputs: Iterable[Variable]) -> list[Function]:
    """The functions that `outputs` depend on, each as late as its readers allow: depth first, the longest path first.

    Such a schedule keeps little alive: values needed only near the end are computed near the end.
    """
    roots = sorted(dict.fromkeys([y.parent for y in outputs if y.parent is not None]), key=attrgetter("rank"))

    def deepest_first(f: Function) -> list[Function]:
        return sorted([p for x in f.inputs if (p := x.parent) is not None], key=attrgetter("rank"))[::-1]

    return operands_first(roots, deepest_first)


class Forward:
    """A forward pass in execution order, and the values that its gradient reads from it.

    Args:
        schedule: Its functions. A place is an index of this.
        outputs: The differentiated Variables. Their functions need no recomputation, since their results stay in any
            case.
        emitted: The functions of the gradients.
    """

    def __init__(self, schedule: Sequence[Function], outputs: Iterable[Variable], emitted: Iterable[Function]) -> None:
        self.schedule = schedule
        self._place = place = {f: t for t, f in enumerate(schedule)}
        results = {y.parent for y in outputs}
        self.droppable = frozenset(f for f in schedule if f.inputs and f.op.reads != 0 and f not in results)
        """The functions that can be recomputed."""
        needed = {x for e in emitted for x in reads(e) if x.parent in place}
        saved = [0] * max(1, len(schedule))
        for x in needed:
            if not x.parent.op.view:  # type: ignore[union-attr]
                saved[place[x.parent]] += x.spec.nbytes  # type: ignore[index]
        self._sums = list(itertools.accumulate(saved))
        """Bytes that the gradient reads of the values computed up to each place."""
        self.wanted = self._sums[-1]
        """Bytes that the gradient reads in total."""
        self._cost = self._crossing(needed)

    def _crossing(self, needed: set[Variable]) -> list[int]:
        """For a cut after each place: bytes that cross it, counted twice if the gradient does not otherwise need
        them."""
        spans: dict[Variable, tuple[int, int]] = {}
        for f, t in self._place.items():
            for x in reads(f):
                p = x.parent
                if p in self.droppable:
                    low, high = spans.get(x, (self._place[p], self._place[p]))
                    spans[x] = min(low, t), max(high, t)
        change = [0] * len(self._sums)
        for x, (low, high) in spans.items():
            nbytes = x.spec.nbytes * (1 if x in needed or x.parent.op.forwards_inputs else 2)  # type: ignore[union-attr]
            change[low] += nbytes
            change[high] -= nbytes
        return list(itertools.accumulate(change))

    @property
    def units(self) -> float:
        """The ratio of the bytes that the gradient reads to those that cross a good cut: the depth, in layers."""
        costs = sorted([c for c in self._cost if c > 0])
        return max(1.0, self.wanted / costs[len(costs) // 10]) if costs else 1.0

    def cuts(self, shares: Sequence[float]) -> list[int]:
        """Cuts that give the segments about these shares of the bytes that the gradient reads, each moved to the
        cheapest place nearby."""
        ends: list[int] = []
        total, whole = self.wanted, sum(shares)
        upto, start = 0.0, 0
        for share, after in itertools.pairwise(shares):
            upto += share
            aim, slack = total * upto / whole, total * min(share, after) / whole / 2
            low = self._first(aim - slack, start)
            high = max(low, self._first(aim + slack, start) - 1)
            middle = self._first(aim, start)
            places = range(low, min(high, len(self._sums) - 2) + 1)
            best = min(places, key=lambda t: (self._cost[t], abs(t - middle)), default=-1)
            ends.append(max([best, *ends[-1:]]))
            start = ends[-1] + 1
        return ends

    def _first(self, value: float, start: int) -> int:
        """The first place from `start` on up to which the gradient reads at least `value` bytes."""
        last = len(self._sums) - 1
        return min(bisect.bisect_left(self._sums, value, lo=min(start, last + 1)), last)

    def plan(self, nest: Nest, dropped: frozenset[Function]) -> Plan:
        """The plan with segments of these shares, nested accordingly."""
        shares, tree = nest
        ends = self.cuts(shares)
        return Plan({f: bisect.bisect_left(ends, t) for f, t in self._place.items()}, dropped, tree)


class Node(NamedTuple):
    """A stretch of segments, numbered in forward order, and the stretches that it consists of.

    The values that its last part needs are computed together with those that the earlier parts start from; each of
    these is recomputed from there, once the gradient has come back to its end.
    """

    first: int
    end: int
    """One past the last of its segments."""
    parts: tuple[Node, ...] = ()
    """In forward order; empty if all of it is computed at once."""


class Plan(NamedTuple):
    """What is recomputed, and when."""

    segment: Mapping[Function, int]
    """The segment that each forward function belongs to."""
    dropped: frozenset[Function]
    """The functions whose results are not kept for the gradient."""
    tree: Node
    bases_stay: bool = False
    """Whether a value from which the next segment is recomputed stays for the gradient of its own segment, which
    follows. This takes less arithmetic, but more memory in some graphs."""


# ---------------------------------------------------------------- nests

Nest = tuple[list[float], Node]
"""Shares of segments, and their nesting."""


def in_a_row(count: int) -> Node:
    """`count` segments on one level."""
    return Node(0, count, tuple([Node(i, i + 1) for i in range(count)]))


def uniform_plan(count: int) -> Nest:
    """`count` segments of equal shares, on one level."""
    return [1.0] * count, in_a_row(count)


def binomial_plan(levels: int, slots: int) -> Nest:
    """The deepest nest of segments that `slots` kept values suffice for, if each is recomputed `levels` times.

    With k levels and m slots it has C(m + k, k + 1) steps: a stretch with m slots is cut into m stretches of one level
    less, the first with m slots and each next with one less, since one is taken by the value that it starts from
    (Griewank and Walther, 'Algorithm 799: revolve', ACM TOMS 26, 2000; a stretch of no level keeps all its steps).
    """
    shares: list[float] = []

    def stretch(level: int, free: int) -> Node:
        first = len(shares)
        if level == 0 or free == 1:
            shares.append(float(free if level == 0 else 1))
            return Node(first, first + 1)
        parts = tuple([stretch(level - 1, i) for i in range(free, 0, -1)])
        return Node(first, len(shares), parts)

    return shares, stretch(levels, slots)


def slots_for(levels: int, steps: float) -> int:
    """The least number of slots with which `levels` levels suffice for `steps` steps."""
    slots = 1
    while math.comb(slots + levels, levels + 1) < steps:
        slots += 1
    return slots


def partly(nest: Nest, share: float) -> Nest:
    """`nest` for the first `share` of the forward pass; the rest is kept."""
    shares, tree = nest
    end = len(shares)
    return [*shares, sum(shares) * (1 / share - 1)], Node(0, end + 1, (tree, Node(end, end + 1)))


_FEWEST_STEPS = 4
"""The fewest steps of a loop to cut."""

SHARES = (0.35, 0.6, 1.0)
"""Sizes of segments to try, as fractions of the size at which there are as many segments as steps in each: a step
usually needs more than it carries."""


def sizes_of(steps: int, levels: int, share: float) -> tuple[int, ...]:
    """The numbers of steps of a loop's segments, of their segments, and so on, for up to `levels` levels.

    The sizes divide each other if possible: a remainder is sliced off, and thereby copied.
    """
    sizes: list[int] = []
    before = steps if steps >= _FEWEST_STEPS else 0
    for level in range(1, levels + 1):
        aim = min(share * steps ** (1 - level / (levels + 1)), before / 2)
        if round(aim) < 2:
            break
        near = [d for d in range(2, before // 2 + 1) if before % d == 0 and 0.6 * aim <= d <= 1.6 * aim]
        before = min(near, key=lambda d: abs(math.log(d / aim)), default=round(aim))
        sizes.append(before)
    return tuple(sizes)


def by_blocks(schedule: Sequence[Function], dropped: frozenset[Function]) -> Plan:
    """A segment for each block: functions of `dropped` that pass values to each other; two `with nn.recompute():` make
    two blocks."""
    head: dict[Function | None, Function] = {}

    def head_of(f: Function) -> Function:
        while head[f] is not f:
            head[f] = head[head[f]]
            f = head[f]
        return f

    for f in schedule:
        if f in dropped:
            head[f] = f
            for p in [x.parent for x in reads(f)]:
                if p in head and p is not None and p.mark is f.mark:
                    head[head_of(p)] = f
    last = {head_of(f): t for t, f in enumerate(schedule) if f in head}
    numbers = {f: n for n, f in enumerate(sorted(last, key=last.__getitem__))}
    segment, number = {}, 0
    for f in schedule:
        if f in head:
            number = numbers[head_of(f)]
        segment[f] = number
    # The plain graph comes last, so that no block is exempt.
    return Plan(segment, dropped, in_a_row(len(numbers) + 1))
