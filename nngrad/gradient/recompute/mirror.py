"""Which plan to follow: plans are judged by the graphs that they make, and the plain graph is one of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ...graph import Function, Variable, building, functions_of, rooms
from ...graph.building import collector_paused
from .costs import arithmetic, is_heavy, reads
from .liveness import predicted_peak
from .policies import Block, Chosen, Kept, LeastMemory, Marked, MemoryBudget, Policy, Segments, policy_of
from .rebuild import rebuild
from .segments import Forward, binomial, partly, slots_for, uniform
from .stages import Node, Plan

Cut = Callable[[], tuple[list[float], Node]]


class Candidate(NamedTuple):
    """A graph of the gradients, and what it costs."""

    gradients: list[Variable]
    peak: int
    """Predicted bytes of temporaries of outputs and gradients."""
    extra: float
    """Arithmetic of what is computed again, as a share of that of the plain graph."""
    plan: Plan | None = None
    sums_split: bool = False
    """Whether sums of gradients were split into partial ones."""


def mirrored(
    outputs: Sequence[Variable], gradients: list[Variable], recompute: Any = None, seeds: Sequence[Any] = ()
) -> list[Variable]:
    """The gradients by a graph that computes some forward values again where they are needed, to save memory.

    Args:
        outputs: What was differentiated.
        gradients: Its gradients, as emitted.
        recompute: The policy; see `nn.grad`.
        seeds: Gradients at the outputs that were given.

    Returns:
        `gradients` themselves where there is nothing to do, or where no plan lowers the predicted peak.
    """
    if recompute is False:
        return gradients
    policy = policy_of(recompute)
    roots = [y for y in (*outputs, *[s for s in seeds if s is not None]) if y.parent is not None]
    if policy is None:
        policy = inherited(roots)
        if policy is None:
            return gradients
    with building.having("mark", None), building.having("emission", None), collector_paused():
        return _Search(roots, gradients, policy).run().gradients


def inherited(outputs: Sequence[Variable]) -> Policy | None:
    """The policy of a graph that has marks of its own: that of the gradients in it, or that of `nn.recompute()`."""
    found: Policy | None = None
    if not rooms.marks:
        return None
    for f in functions_of(outputs):
        if f.mark is not None:
            if not isinstance(f.mark, Block):
                policy: Policy = f.mark
                return policy
            found = Marked()
    return found


class _Search:
    """Tries plans for a policy."""

    def __init__(self, outputs: Sequence[Variable], gradients: list[Variable], policy: Policy) -> None:
        self._outputs = list(outputs)
        self._gradients = gradients
        self._policy = policy
        known = functions_of(outputs)
        before = set(known)
        emitted = [f for f in functions_of(gradients) if f not in before]
        self._forward = Forward(self._outputs, emitted)
        self._arithmetic = max(1, sum([arithmetic(f) for f in (*known, *emitted)]))
        self._plain = Candidate(gradients, predicted_peak([*outputs, *gradients]), 0.0)

    def run(self) -> Candidate:
        """The best candidate."""
        policy = self._policy
        if not any(self._forward.saved):
            return self._plain
        if isinstance(policy, Segments):
            return self._lowest(self._nested(policy.levels))
        if isinstance(policy, LeastMemory):
            tried = [c if c.extra <= policy.extra else self._spared(c) for c in self._of_all_kinds(policy.extra)]
            return self._lowest(iter([c for c in tried if c.extra <= policy.extra]))
        if isinstance(policy, MemoryBudget):
            return self._fitting(policy.nbytes)
        return self._lowest(self._restricted(self._named()))

    def _lowest(self, candidates: Iterator[Candidate]) -> Candidate:
        best = min(candidates, key=lambda c: (c.peak, c.extra), default=self._plain)
        return self._spared(best) if best.peak < self._plain.peak else self._plain

    def _spared(self, best: Candidate) -> Candidate:
        """The same plan with less arithmetic, where that takes no more memory."""
        if best.plan is None or best.sums_split:
            # Where gradients of a shared weight are summed, XLA has been seen to gather all of them in one loop then.
            return best
        other = self._followed(best.plan._replace(bases_stay=True))
        return other if other.peak <= best.peak and other.extra <= best.extra else best

    # ---------------------------------------------------------------- candidates

    def _candidate(self, cut: tuple[list[float], Node], dropped: frozenset[Function]) -> Candidate:
        return self._followed(self._forward.plan(*cut, dropped))

    def _followed(self, plan: Plan) -> Candidate:
        gradients, again, sums_split = rebuild(self._forward.functions, self._outputs, self._gradients, plan)
        if not isinstance(self._policy, Marked):
            rooms.marks = True
            for f in again:
                f.mark = self._policy
        extra = sum([arithmetic(f) for f in again]) / self._arithmetic
        return Candidate(gradients, predicted_peak([*self._outputs, *gradients]), extra, plan, sums_split)

    def _nested(self, levels: int) -> Iterator[Candidate]:
        """Plans of so many levels that compute everything again."""
        units, every = self._forward.units, self._forward.droppable
        slots = slots_for(levels, units)
        for count in sorted({max(2, round(slots * factor)) for factor in (0.5, 0.7, 1.0)}):
            yield self._candidate(binomial(levels, count), every)
        if levels == 1:
            for count in sorted({max(2, round(math.sqrt(units) * factor)) for factor in (0.5, 1.0)}):
                yield self._candidate(uniform(count), every)

    def _light(self) -> Iterator[Candidate]:
        """Plans that compute nothing again that takes much arithmetic."""
        light = frozenset(f for f in self._forward.droppable if not is_heavy(f.op))
        units = self._forward.units
        for count in sorted({max(2, round(n)) for n in (math.sqrt(units), units / 2, units)}):
            yield self._candidate(uniform(min(count, 256)), light)

    def _partial(self, more: Callable[[Candidate], bool]) -> Iterator[Candidate]:
        """Plans that compute a first part of the forward pass again, as large as `more` asks for, by bisection."""
        slots = slots_for(1, self._forward.units)
        low, high = 0.0, 1.0
        for _ in range(5):
            middle = (low + high) / 2
            candidate = self._candidate(partly(lambda: binomial(1, slots), middle), self._forward.droppable)
            yield candidate
            low, high = (middle, high) if more(candidate) else (low, middle)

    def _of_all_kinds(self, most: float) -> Iterator[Candidate]:
        """Plans of every kind, those that add less arithmetic than others first."""
        yield from self._light()
        full = list(self._nested(1))
        yield from full
        least = min([c.extra for c in full])
        if least > most:
            yield from self._partial(lambda c: c.extra <= most)
        for levels in range(2, 5):
            if least * levels <= most:
                yield from self._nested(levels)

    def _fitting(self, nbytes: float) -> Candidate:
        """The candidate with the least arithmetic among those that fit."""
        if self._plain.peak <= nbytes:
            return self._plain
        tried = list(self._light())
        if all([c.peak > nbytes for c in tried]):
            tried += self._nested(1)
        if any([c.peak <= nbytes for c in tried]):
            tried += self._partial(lambda c: c.peak > nbytes)
        else:
            for levels in range(2, 11):
                tried += self._nested(levels)
                if any([c.peak <= nbytes for c in tried]):
                    break
        fitting = [c for c in tried if c.peak <= nbytes]
        if fitting:
            return self._spared(min(fitting, key=lambda c: (c.extra, c.peak)))
        best = self._lowest(iter(tried))
        warnings.warn(
            f"MemoryBudget({nbytes}): no plan was found that fits; the lowest predicted peak is {best.peak} bytes",
            RuntimeWarning, stacklevel=6,
        )
        return best

    def _named(self) -> frozenset[Function]:
        """The functions that the user wants to have computed again."""
        policy, droppable = self._policy, self._forward.droppable
        if isinstance(policy, Chosen):
            return frozenset(f for f in droppable if policy.predicate(f))
        if isinstance(policy, Kept):
            return frozenset(f for f in droppable if policy(f))
        return frozenset(f for f in droppable if isinstance(f.mark, Block))

    def _restricted(self, dropped: frozenset[Function]) -> Iterator[Candidate]:
        """Plans that compute only functions of `dropped` again."""
        if not dropped:
            return
        yield self._followed(blocks(self._forward.functions, dropped))
        units = self._forward.units
        for count in sorted({max(2, round(n)) for n in (math.sqrt(units), units / 2)}):
            yield self._candidate(uniform(min(count, 256)), dropped)


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
