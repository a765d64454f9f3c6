"""Where a forward pass is cut into segments.

A cut costs what crosses it: values from before it that are read after it must be kept, or be computed again themselves.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType

from ...graph import Function, Variable, by_rank
from ...graph.traverse import operands_first
from .costs import reads
from .plan import Nest, Plan


def in_order(outputs: Iterable[Variable]) -> list[Function]:
    """What `outputs` depend on, each function as late as its readers allow: depth first, the longest way first.

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
        emitted: Iterable[Function],
        originals: Mapping[Function, Function] = MappingProxyType({}),
    ) -> None:
        self._place = place
        self._originals = originals
        self.droppable = frozenset(f for f in place if f.inputs and f not in results)
        """The functions that can be computed again."""
        needed = {x for e in emitted for x in reads(e) if x.parent in place}
        saved = [0] * (1 + max(place.values(), default=0))
        for x in needed:
            if not x.parent.op.view:  # type: ignore[union-attr]
                saved[place[x.parent]] += x.spec.nbytes  # type: ignore[index]
        self._sums = list(itertools.accumulate(saved))
        """Bytes that the gradient wants of what is computed up to each place."""
        self.wanted = self._sums[-1]
        """Bytes that it wants of all."""
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
        change = [0] * len(self._sums)
        for x, (low, high) in spans.items():
            nbytes = x.spec.nbytes * (1 if x in needed or x.parent.op.forwards_inputs else 2)  # type: ignore[union-attr]
            change[low] += nbytes
            change[high] -= nbytes
        return list(itertools.accumulate(change))

    @property
    def units(self) -> float:
        """How many times what the gradient wants is as large as what crosses a good cut: the depth, in layers."""
        costs = sorted([c for c in self._cost if c > 0])
        return max(1.0, self.wanted / costs[len(costs) // 10]) if costs else 1.0

    def cuts(self, shares: Sequence[float]) -> list[int]:
        """Places to cut so that about these shares of what the gradient wants lie in each segment, each moved to the
        cheapest place near it."""
        found: list[int] = []
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
            found.append(max([best, *found[-1:]]))
            start = found[-1] + 1
        return found

    def _first(self, value: float, start: int) -> int:
        """The first place from `start` on up to which the gradient wants at least so many bytes."""
        last = len(self._sums) - 1
        return min(bisect.bisect_left(self._sums, value, lo=min(start, last + 1)), last)

    def plan(self, nest: Nest, dropped: frozenset[Function]) -> Plan:
        """Segments of these shares, nested so."""
        shares, tree = nest
        ends = self.cuts(shares)
        return Plan({f: bisect.bisect_left(ends, t) for f, t in self._place.items()}, dropped, tree, self._originals)


def in_sequence(schedule: Sequence[Function], outputs: Iterable[Variable], emitted: Iterable[Function]) -> Forward:
    """The forward pass of `outputs` in the order in which it runs."""
    return Forward({f: t for t, f in enumerate(schedule)}, {y.parent for y in outputs}, emitted)
