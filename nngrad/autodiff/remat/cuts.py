"""Where a forward pass is cut into segments, and how segments are nested.

A cut costs what crosses it: values from before it that are read after it must be kept, or be computed again themselves.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType

from ...graph import Function, Variable, by_rank
from ...graph.traverse import operands_first
from .costs import reads
from .plan import Node, Plan

Nest = tuple[list[float], Node]
"""Shares of segments, and how these are nested."""



def in_order(outputs: Iterable[Variable]) -> list[Function]:
    """Returns what `outputs` depend on, each function as late as its readers allow: depth first, the longest way first.

    A schedule made like this keeps little alive: what is needed only near the end is computed near the end.
    """
    roots = sorted(dict.fromkeys([y.parent for y in outputs if y.parent is not None]), key=by_rank)

    def deepest_first(f: Function) -> list[Function]:
        return sorted([p for x in f.inputs if (p := x.parent) is not None], key=by_rank)[::-1]

    return operands_first(roots, deepest_first)


class Forward:
    """The places of functions in a forward pass, and what its gradient reads of it.

    Args:
        place: The place of each function. Those of one place are never cut apart.
        results: Functions that are not to be computed again, since their results stay in any case.
        emitted: The functions of the gradients.
        originals: For functions that compute something again already: what they compute again.
    """

    def __init__(
        self,
        place: Mapping[Function, int],
        results: Container[Function | None],
        emitted: Sequence[Function],
        originals: Mapping[Function, Function] = MappingProxyType({}),
    ) -> None:
        self._place = place
        self._originals = originals
        self.droppable = frozenset(f for f in place if f.inputs and f not in results)
        """The functions that can be computed again."""
        needed = {x for e in emitted for x in reads(e) if x.parent in place}
        self.saved = [0] * (1 + max(place.values(), default=0))
        """Bytes that the gradient wants of what is computed at each place."""
        for x in needed:
            if not x.parent.op.view:  # type: ignore[union-attr]
                self.saved[place[x.parent]] += x.spec.nbytes  # type: ignore[index]
        self._cost = self._crossing(needed)

    def _crossing(self, needed: set[Variable]) -> list[int]:
        """For a cut after each place: bytes that cross it, twice where the gradient has no other use for them."""
        spans: dict[Variable, tuple[int, int]] = {}
        for f, t in self._place.items():
            for x in reads(f):
                p = x.parent
                if p in self.droppable:
                    low, high = spans.get(x, (self._place[p], self._place[p]))
                    spans[x] = min(low, t), max(high, t)
        change = [0] * (len(self.saved) + 1)
        for x, (low, high) in spans.items():
            nbytes = x.spec.nbytes * (1 if x in needed or x.parent.op.forwards_inputs else 2)  # type: ignore[union-attr]
            change[low] += nbytes
            change[high] -= nbytes
        return list(itertools.accumulate(change))

    @property
    def units(self) -> float:
        """How many times what the gradient wants is as large as what crosses a good cut: the depth, in layers."""
        total = sum(self.saved)
        costs = sorted(c for c in self._cost[:-1] if c > 0)
        if not total or not costs:
            return 1.0
        usual = costs[len(costs) // 10]
        return max(1.0, total / usual)

    def cuts(self, shares: Sequence[float]) -> list[int]:
        """Places to cut so that about these shares of what the gradient wants lie in each segment.

        Each is moved to the cheapest place near it.
        """
        sums = list(itertools.accumulate(self.saved))
        total = sums[-1] if sums else 0
        found: list[int] = []
        whole = sum(shares)
        upto, start = 0.0, 0
        for share, after in itertools.pairwise(shares):
            upto += share
            aim, slack = total * upto / whole, total * min(share, after) / whole / 2
            low = _first(sums, aim - slack, start)
            high = max(low, _first(sums, aim + slack, start) - 1)
            places = [t for t in range(low, high + 1) if t < len(sums) - 1]
            if places:
                middle = _first(sums, aim, start)
                best = min(places, key=lambda t: (self._cost[t], abs(t - middle)))
                if not found or best > found[-1]:
                    found.append(best)
                    start = best + 1
            else:
                found.append(found[-1] if found else -1)
        return found

    def plan(self, shares: Sequence[float], tree: Node, dropped: frozenset[Function]) -> Plan:
        """Segments of these shares, nested as `tree` says."""
        ends = self.cuts(shares)
        return Plan({f: bisect.bisect_left(ends, t) for f, t in self._place.items()}, dropped, tree, self._originals)


def in_sequence(schedule: Sequence[Function], outputs: Sequence[Variable], emitted: Sequence[Function]) -> Forward:
    """The forward pass of `outputs` in the order in which it runs."""
    return Forward({f: t for t, f in enumerate(schedule)}, {y.parent for y in outputs}, emitted)


def _first(sums: list[int], value: float, start: int) -> int:
    """The first place from `start` on where the sum is at least `value`."""
    return min(bisect.bisect_left(sums, value, lo=min(start, len(sums))), len(sums) - 1)


def uniform(count: int) -> Nest:
    """`count` segments of equal shares, one level."""
    return [1.0] * count, Node(0, count, tuple([Node(i, i + 1) for i in range(count)]))


def binomial(levels: int, slots: int) -> Nest:
    """The deepest nest of segments that `slots` values are enough for, when each is computed again `levels` times.

    With k levels and m slots it has C(m + k, k + 1) steps: a stretch with m slots is cut into m stretches of one level
    less, the first with m slots and each next with one less, since one is taken by the value that it starts from
    (Griewank and Walther, 'Algorithm 799: revolve', ACM TOMS 26, 2000; a stretch of no level keeps all its steps).

    Returns:
        The share of each segment, and how they are nested.
    """
    shares: list[float] = []

    def stretch(level: int, free: int) -> Node:
        if level == 0 or free == 1:
            shares.append(float(free if level == 0 else 1))
            return Node(len(shares) - 1, len(shares))
        first = len(shares)
        parts = tuple([stretch(level - 1, i) for i in range(free, 0, -1)])
        return Node(first, len(shares), parts)

    return shares, stretch(levels, slots)


def slots_for(levels: int, steps: float) -> int:
    """The least number of slots with which `levels` levels are enough for so many steps."""
    slots = 1
    while math.comb(slots + levels, levels + 1) < steps:
        slots += 1
    return slots


def partly(nest: Nest, share: float) -> Nest:
    """`nest` for the first `share` of the forward pass; the rest of it is kept."""
    shares, tree = nest
    whole = sum(shares) * (1 / share - 1)
    end = len(shares)
    return [*shares, whole], Node(0, end + 1, (tree, Node(end, end + 1)))
