"""Which graph of a gradient is taken: candidates are ranked by their structure, and the compiler decides among the
best.

It is asked when the gradient is asked for, about the program that runs then: of `backward()` and `train_step` that is
the true one, of `nn.grad` the one that gives what was differentiated and the gradients. What becomes of a graph
afterwards (it may be differentiated on, or be a part of a larger one) nobody knows yet; and were the decision put off
until something runs, graphs would change after they were handed out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ...execution.program import Program
from ...execution.trials import Trial, trial_of
from ...graph import Function, Variable, contained, functions_of, leaves_of, switch
from ...graph.options import pause_collector
from ...graph.thresholds import CLOSE, CLOSE_TO_PLAIN, MOST_FINALISTS, WORTH_IT
from .candidates import Candidate, Cutting, ProgramOf, Source, sources_of
from .costs import reads
from .cuts import binomial, slots_for, uniform
from .plan import Node, Plan
from .policies import Policy, policy_of, policy_of_marks
from .segmented import Emit, Segmented


@contained
def rematerialised(
    outputs: Sequence[Variable],
    gradients: list[Variable],
    recompute: Any,
    program_of: ProgramOf,
    seeds: Sequence[Any] = (),
    inputs: Sequence[Variable] | None = None,
    runs: bool = True,
    emit: Emit | None = None,
) -> list[Variable]:
    """The gradients by a graph that computes some forward values again where they are needed, to save memory.

    Args:
        outputs: What was differentiated.
        gradients: Its gradients, as emitted.
        recompute: The policy; see `nn.grad`.
        program_of: The program that is going to run with such gradients.
        seeds: Gradients at the outputs that were given.
        inputs: With respect to what; None for all leaves that need a gradient. If there are others, a further gradient
            is likely, and the plan is one along which that can be cut as well.
        runs: Whether it is likely to run just so, and its executable is worth keeping.
        emit: Emits the gradients anew, with loops that are cut into segments; None where that cannot be.

    Returns:
        Where there is nothing to do, or where no plan takes less memory, the gradients as they were emitted.
    """
    pause_collector()
    switch(mark=None, builder=None, precision=None)
    roots = [y for y in (*outputs, *[s for s in seeds if s is not None]) if y.parent is not None]
    policy = policy_of(recompute) or policy_of_marks(functions_of(roots))
    if policy is None:
        return gradients
    if recompute is False:
        return sources_of(roots, gradients, program_of)[0].plain.gradients
    own = None if inputs is None else {id(x) for x in inputs}
    further = own is not None and any([x.need_grad and id(x) not in own for x in leaves_of(roots)])
    segmented = None if emit is None else Segmented(roots, emit, program_of, policy.mark)
    search = Search(roots, gradients, policy, program_of, further, segmented)
    best = search.run()
    if runs:
        search.keep(best)
    return best.gradients


class Search:
    """The candidates for a policy.

    Args:
        outputs: What was differentiated.
        gradients: Its gradients, as emitted.
        policy: What to look for.
        program_of: The program that is going to run with such gradients.
        further: Whether a further gradient is likely.
        segmented: The graphs in which loops are cut.
    """

    def __init__(
        self,
        outputs: Sequence[Variable],
        gradients: list[Variable],
        policy: Policy,
        program_of: ProgramOf,
        further: bool = False,
        segmented: Segmented | None = None,
    ) -> None:
        self._policy = policy
        self.further = further
        self._sources = sources_of(outputs, gradients, program_of, policy.mark)
        self.plain = self._sources[0].plain
        """The graph that computes nothing again."""
        self._cuttings = [cutting for source in self._sources for cutting in source.cuttings]
        self._trials: dict[Program, Trial] = {}
        self._segmented = segmented

    def run(self) -> Candidate:
        """The best candidate."""
        if not any([any(cutting.forward.saved) for cutting in self._cuttings]):
            return self.plain
        return self._policy.choose(self)

    # ---------------------------------------------------------------- which is best

    def smallest(self, candidates: Iterable[Candidate], all_anew: bool = False) -> Candidate:
        """The candidate that takes the least memory; the plain graph where none takes less.

        Args:
            candidates: Among what.
            all_anew: Whether a segment's gradient is to read nothing but what was computed again for it.
        """
        ranked = _ranked(candidates)[:MOST_FINALISTS]
        if not ranked or self.plain.peak * CLOSE < ranked[0].peak:
            return self.plain
        close = [c for c in ranked if c.peak <= CLOSE * ranked[0].peak]
        alike = all_anew and self.further
        best = self._decided(close, alike)
        return self._decided(ranked, alike) if best is self.plain and len(close) < len(ranked) else best

    def _decided(self, candidates: list[Candidate], all_anew: bool) -> Candidate:
        """The one of some candidates and the plain graph that takes least by the compiler's account."""
        finalists = candidates if all_anew else list(map(self.spared, candidates))
        if self.plain.peak <= CLOSE_TO_PLAIN * candidates[0].peak:
            finalists = [*finalists, self.plain]
        finalists = _ranked(finalists)
        if len(finalists) > 1:
            allotted = {c.program: trial.nbytes for c in finalists if (trial := self._trial_of(c)).nbytes is not None}
            if len(allotted) == len(finalists):
                return min(finalists, key=lambda c: (allotted[c.program], c.extra))
        return finalists[0]

    def fitting(self, nbytes: float) -> tuple[bool, Candidate]:
        """The candidate with the least arithmetic among those that fit, or else the smallest; and whether it fits."""
        if self.plain.peak * CLOSE_TO_PLAIN <= nbytes or self.bytes_of(self.plain) <= nbytes:
            return True, self.plain
        # What the structure does not show is much the same in all candidates.
        most = nbytes * self.plain.peak / self.bytes_of(self.plain)
        tried = self._likely_to_fit(most)
        fitting = sorted([c for c in tried if c.peak <= most], key=lambda c: (c.extra, c.peak))
        for candidate in fitting[: MOST_FINALISTS - 1]:
            spared = self.spared(candidate)
            if self.bytes_of(spared) <= nbytes:
                return True, spared
        best = self.smallest(tried)
        return self.bytes_of(best) <= nbytes, best

    def _likely_to_fit(self, most: float) -> list[Candidate]:
        """Plans of more and more arithmetic, until some have a predicted peak of no more than `most`."""
        tried = list(self._light())
        if all([c.peak > most for c in tried]):
            tried += self.nested(1)
        if any([c.peak <= most for c in tried]):
            return tried + [c for cutting in self._cuttings for c in self._partial(cutting, lambda c: c.peak > most)]
        for levels in range(2, 11):
            tried += self.nested(levels)
            if any([c.peak <= most for c in tried]):
                break
        return tried

    def spared(self, candidate: Candidate) -> Candidate:
        """The same plan with less arithmetic, where that is worth it and takes no more memory."""
        if candidate.sparing is None:
            return candidate
        other = candidate.sparing()
        return other if other.peak <= candidate.peak and other.extra <= WORTH_IT * candidate.extra else candidate

    def bytes_of(self, candidate: Candidate) -> int:
        """Returns what it takes by the compiler's account; the predicted peak where there is none."""
        nbytes = self._trial_of(candidate).nbytes
        return candidate.peak if nbytes is None else nbytes

    def keep(self, candidate: Candidate) -> None:
        """Let its executable be found when it runs, if it was compiled."""
        if candidate.program in self._trials:
            self._trials[candidate.program].keep()

    def _trial_of(self, candidate: Candidate) -> Trial:
        trial = self._trials.get(candidate.program)
        if trial is None:
            trial = self._trials[candidate.program] = trial_of(candidate.program)
        return trial

    # ---------------------------------------------------------------- candidates

    def nested(self, levels: int) -> Iterator[Candidate]:
        """Plans of so many levels that compute everything again."""
        for cutting in self._cuttings:
            yield from self._nested(cutting, levels)
        depth = levels
        while depth:  # fewer levels may take less: what is scanned is copied at each of them
            segmented = self._in_segments(depth)
            yield from [source.plain for source in segmented]
            for cutting in segmented[0].cuttings if segmented else ():
                yield from self._nested(cutting, levels)
            depth //= 2

    def _in_segments(self, levels: int, named: Callable[[Function], Any] = lambda f: True) -> list[Source]:
        """The graphs in which loops are cut so many levels deep, the one that takes least first."""
        return [] if self._segmented is None else self._segmented.sources(levels, named)

    def _nested(self, cutting: Cutting, levels: int) -> Iterator[Candidate]:
        units = cutting.forward.units
        slots = slots_for(levels, units)
        for count in sorted({max(2, round(slots * factor)) for factor in (0.5, 0.7, 1.0)}):
            yield cutting(binomial(levels, count))
        if levels == 1:
            for count in sorted({max(2, round(math.sqrt(units) * factor)) for factor in (0.5, 1.0, 1.5)}):
                yield cutting(uniform(count))

    def of_all_kinds(self, most: float) -> Iterator[Candidate]:
        """Plans of every kind, those that add less arithmetic than others first, up to about a share of `most`."""
        yield from self._light()
        for cutting in self._cuttings:
            full = list(self._nested(cutting, 1))
            yield from full
            least = min([c.extra for c in full])
            if least > most:
                yield from self._partial(cutting, lambda c: c.extra <= most)
            for levels in range(2, 5):
                if least * levels <= most:
                    yield from self._nested(cutting, levels)
        for levels in range(1, 5):
            found = [source for source in self._in_segments(levels) if source.plain.extra <= most]
            if not found:
                break
            yield from [source.plain for source in found]
            yield from [c for cutting in found[0].cuttings for c in self._nested(cutting, 1)]

    def restricted(self, named: Callable[[Function], Any]) -> Iterator[Candidate]:
        """Plans that compute only functions again for which `named` is true."""
        yield from [source.plain for source in self._in_segments(1, named)]
        for source in self._sources:
            dropped = frozenset(filter(named, source.cuttings[0].forward.droppable))
            if dropped:
                yield source.following(blocks(source.schedule, dropped))
        for cutting in self._cuttings:
            if any(map(named, cutting.forward.droppable)):
                units = cutting.forward.units
                yield from self._uniform(cutting, (math.sqrt(units), units / 2), named)

    def _light(self) -> Iterator[Candidate]:
        """Plans that compute nothing again that takes much arithmetic."""
        for cutting in self._cuttings:
            units = cutting.forward.units
            yield from self._uniform(cutting, (math.sqrt(units), units / 2, units), lambda f: not f.heavy)

    def _uniform(
        self, cutting: Cutting, counts: Sequence[float], dropped: Callable[[Function], Any]
    ) -> Iterator[Candidate]:
        for count in sorted({max(2, round(n)) for n in counts}):
            yield cutting(uniform(min(count, 256)), dropped)

    def _partial(self, cutting: Cutting, more: Callable[[Candidate], bool]) -> Iterator[Candidate]:
        """Plans that compute a first part of the forward pass again, as large as `more` asks for, by bisection."""
        low, high = 0.0, 1.0
        for _ in range(5):
            middle = (low + high) / 2
            candidate = cutting.partly(middle)
            yield candidate
            low, high = (middle, high) if more(candidate) else (low, middle)


def _ranked(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates, each program once, those first that are predicted to take the least memory."""
    return sorted({c.program: c for c in candidates}.values(), key=lambda c: (c.peak, c.extra))


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
