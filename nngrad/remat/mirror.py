"""Which plan to follow: plans are judged by the graphs that they make, and the plain graph is one of them."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..graph import Function, Variable, contained, functions_of, leaves_of, switch
from ..graph.options import pause_collector
from .costs import reads
from .keeping import keeping_sums
from .originals import contains_recomputed, reading_originals
from .policies import Block, Chosen, Kept, LeastMemory, Marked, MemoryBudget, Policy, Segments, policy_of
from .segments import binomial, slots_for, uniform
from .stages import Node, Plan
from .ways import Candidate, Gradients, Way


@contained
def rematerialised(
    outputs: Sequence[Variable],
    gradients: list[Variable],
    recompute: Any = None,
    seeds: Sequence[Any] = (),
    inputs: Sequence[Variable] | None = None,
) -> list[Variable]:
    """The gradients by a graph that computes some forward values again where they are needed, to save memory.

    Args:
        outputs: What was differentiated.
        gradients: Its gradients, as emitted.
        recompute: The policy; see `nn.grad`.
        seeds: Gradients at the outputs that were given.
        inputs: With respect to what; None for all leaves that need a gradient. If there are others, a further gradient
            is likely, and the plan is one along which that can be cut as well.

    Returns:
        Where there is nothing to do, or where no plan lowers the predicted peak, the gradients as they were emitted;
        but for sums that XLA would compute over and over (keeping.py).
    """
    pause_collector()
    switch(mark=None, builder=None)
    policy = policy_of(recompute)
    roots = [y for y in (*outputs, *[s for s in seeds if s is not None]) if y.parent is not None]
    known = functions_of(roots) if policy is None else []
    below = inherited(known)
    if policy is None and recompute is not False:
        policy = below
    if policy is not None:
        own = None if inputs is None else {id(x) for x in inputs}
        further = own is not None and any([x.need_grad and id(x) not in own for x in leaves_of(roots)])
        return _Search(roots, gradients, policy, further).run().gradients
    if below is not None:
        return with_originals(roots, gradients)[0].plain.gradients
    return keeping_sums(known, gradients)


def with_originals(outputs: Sequence[Variable], gradients: list[Variable], mark: Any = None) -> list[Gradients]:
    """The graph of gradients as it was emitted, and the one that reads no recomputed values, if that takes less memory:
    the one that takes least comes first."""
    known = functions_of(outputs)
    emitted = Gradients(outputs, known, gradients, mark)
    if not contains_recomputed(known):
        return [emitted]
    other = Gradients(outputs, known, reading_originals(known, gradients), mark)
    return [other, emitted] if other.plain.peak < emitted.plain.peak else [emitted]


def inherited(functions: Sequence[Function]) -> Policy | None:
    """The policy of a graph that has marks of its own: that of the gradients in it, or that of `nn.recompute()`."""
    found: Policy | None = None
    for f in functions:
        if f.mark is not None:
            if not isinstance(f.mark, Block):
                policy: Policy = f.mark
                return policy
            found = Marked()
    return found


class _Search:
    """Tries plans for a policy."""

    def __init__(
        self, outputs: Sequence[Variable], gradients: list[Variable], policy: Policy, further: bool = False
    ) -> None:
        self._policy = policy
        self._further = further
        mark = None if isinstance(policy, Marked) else policy
        self._graphs = with_originals(outputs, gradients, mark)
        self._plain = self._graphs[0].plain
        self._ways = [way for graph in self._graphs for way in graph.ways]

    def run(self) -> Candidate:
        """The best candidate."""
        policy = self._policy
        if not any([any(way.forward.saved) for way in self._ways]):
            return self._plain
        if isinstance(policy, Segments):
            return self._lowest(c for way in self._ways for c in self._nested(way, policy.levels))
        if isinstance(policy, LeastMemory):
            tried = [c if c.extra <= policy.extra else self._spared(c) for c in self._of_all_kinds(policy.extra)]
            return self._lowest(iter([c for c in tried if c.extra <= policy.extra]))
        if isinstance(policy, MemoryBudget):
            return self._fitting(policy.nbytes)
        return self._lowest(self._restricted())

    def _lowest(self, candidates: Iterator[Candidate]) -> Candidate:
        best = min(candidates, key=lambda c: (c.peak, c.extra), default=self._plain)
        return self._spared(best) if best.peak < self._plain.peak else self._plain

    def _spared(self, best: Candidate) -> Candidate:
        """The same plan with less arithmetic, where that takes no more memory."""
        if best.sparing is None or (self._further and isinstance(self._policy, Segments)):
            # A further gradient is cut where each segment's gradient reads nothing but what was computed again for it.
            return best
        other = best.sparing()
        return other if other.peak <= best.peak and other.extra <= best.extra else best

    # ---------------------------------------------------------------- candidates

    def _nested(self, way: Way, levels: int) -> Iterator[Candidate]:
        """Plans of so many levels that compute everything again."""
        slots = slots_for(levels, way.forward.units)
        for count in sorted({max(2, round(slots * factor)) for factor in (0.5, 0.7, 1.0)}):
            yield way(binomial(levels, count))
        if levels == 1:
            root = math.sqrt(way.forward.units)
            for count in sorted({max(2, round(root * factor)) for factor in (0.5, 1.0, 1.5)}):
                yield way(uniform(count))

    def _light(self) -> Iterator[Candidate]:
        """Plans that compute nothing again that takes much arithmetic."""
        for way in self._ways:
            units = way.forward.units
            for count in sorted({max(2, round(n)) for n in (math.sqrt(units), units / 2, units)}):
                yield way(uniform(min(count, 256)), lambda f: not f.op.heavy)

    def _partial(self, way: Way, more: Callable[[Candidate], bool]) -> Iterator[Candidate]:
        """Plans that compute a first part of the forward pass again, as large as `more` asks for, by bisection."""
        low, high = 0.0, 1.0
        for _ in range(5):
            middle = (low + high) / 2
            candidate = way.partly(middle)
            yield candidate
            low, high = (middle, high) if more(candidate) else (low, middle)

    def _of_all_kinds(self, most: float) -> Iterator[Candidate]:
        """Plans of every kind, those that add less arithmetic than others first."""
        yield from self._light()
        for way in self._ways:
            full = list(self._nested(way, 1))
            yield from full
            least = min([c.extra for c in full])
            if least > most:
                yield from self._partial(way, lambda c: c.extra <= most)
            for levels in range(2, 5):
                if least * levels <= most:
                    yield from self._nested(way, levels)

    def _fitting(self, nbytes: float) -> Candidate:
        """The candidate with the least arithmetic among those that fit."""
        if self._plain.peak <= nbytes:
            return self._plain
        tried = list(self._light())
        if all([c.peak > nbytes for c in tried]):
            tried += [c for way in self._ways for c in self._nested(way, 1)]
        if any([c.peak <= nbytes for c in tried]):
            tried += [c for way in self._ways for c in self._partial(way, lambda c: c.peak > nbytes)]
        else:
            for levels in range(2, 11):
                tried += [c for way in self._ways for c in self._nested(way, levels)]
                if any([c.peak <= nbytes for c in tried]):
                    break
        fitting = [c for c in tried if c.peak <= nbytes]
        if fitting:
            return self._spared(min(fitting, key=lambda c: (c.extra, c.peak)))
        best = self._lowest(iter(tried))
        warnings.warn(
            f"MemoryBudget({nbytes}): no plan was found that fits; the lowest predicted peak is {best.peak} bytes",
            RuntimeWarning, stacklevel=_level_of_user(),
        )
        return best

    def _is_named(self, f: Function) -> Any:
        """Whether the user wants to have `f` computed again."""
        if isinstance(self._policy, Chosen):
            return self._policy.predicate(f)
        if isinstance(self._policy, Kept):
            return self._policy(f)
        return isinstance(f.mark, Block)

    def _restricted(self) -> Iterator[Candidate]:
        """Plans that compute only functions again that the user named."""
        for graph in self._graphs:
            dropped = frozenset(filter(self._is_named, graph.droppable))
            if dropped:
                yield graph.following(blocks(graph.schedule, dropped))
        for way in self._ways:
            if any(map(self._is_named, way.forward.droppable)):
                units = way.forward.units
                for count in sorted({max(2, round(n)) for n in (math.sqrt(units), units / 2)}):
                    yield way(uniform(min(count, 256)), self._is_named)


def _level_of_user() -> int:
    """The `stacklevel` with which a warning of the caller names the user's line: the innermost that is not nngrad's."""
    level = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "nngrad").partition(".")[0] == "nngrad":
        level += 1
        frame = frame.f_back
    return level


def blocks(functions: Sequence[Function], dropped: frozenset[Function]) -> Plan:
    """A segment for each block: functions of `dropped` that pass values to each other; those of two `with
    nn.recompute():` are of two blocks."""
    group: dict[Function, Function] = {}

    def head(f: Function) -> Function:
        while group[f] is not f:
            group[f] = group[group[f]]
            f = group[f]
        return f

    for f in functions:
        if f in dropped:
            group[f] = f
            for x in reads(f):
                p = x.parent
                if p in dropped and p in group and p.mark is f.mark:
                    group[head(p)] = f
    last: dict[Function, int] = {}
    for t, f in enumerate(functions):
        if f in group:
            last[head(f)] = t
    numbers = {f: n for n, f in enumerate(sorted(last, key=last.__getitem__))}
    segment, number = {}, 0
    for f in functions:
        if f in group:
            number = numbers[head(f)]
        segment[f] = number
    count = len(numbers)
    # The plain graph comes last: no block is spared.
    return Plan(segment, dropped, Node(0, count + 1, tuple([Node(i, i + 1) for i in range(count + 1)])))
