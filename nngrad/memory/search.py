"""Choose a rematerialised graph of a gradient: rank candidates by their structure, and let the compiler decide whether
the best takes less memory than the plain graph.

The choice is made when the gradient is requested, for the program that will run: for `backward()` and `train_step` that
is the actual one, for `nn.grad` the one that computes the differentiated outputs and the gradients. What happens to a
graph later (it may be differentiated again, or be part of a larger one) is not known yet. If the choice were deferred
until something runs, graphs would change after they were handed out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..extend import Program, Switched, Variable, contained, device_of, executables, functions_of, linearize
from .candidates import Candidate, Emit, Graphs, Named, PlanSource
from .plan import binomial_plan, by_blocks, slots_for, uniform_plan
from .policies import policy_of, policy_of_marks
from .thresholds import CLOSE, CLOSE_TO_PLAIN, MOST_FINALISTS, MOST_LEVELS, MOST_SEGMENTS


@contained
def rematerialised(
    outputs: Sequence[Variable],
    gradients: list[Variable],
    recompute: Any,
    runs_as: Callable[[list[Variable]], Program | list[Variable]],
    seeds: Sequence[Any] = (),
    emit: Emit | None = None,
) -> list[Variable]:
    """Rebuild gradients to recompute some forward values where they are needed, to save memory.

    Args:
        outputs: The differentiated Variables.
        gradients: Their gradients, as emitted.
        recompute: The policy; see `nn.grad`.
        runs_as: What will run with such gradients: a program, or one that computes the Variables it returns.
        seeds: Given gradients at the outputs.
        emit: Emits the gradients again, with loops cut into segments; None if that is impossible.

    Returns:
        The gradients as emitted if there is nothing to do, or if no plan takes less memory.
    """
    Switched(mark=None, builder=None, precision=None).from_now_on()
    roots = [y for y in (*outputs, *[s for s in seeds if s is not None]) if y.parent is not None]
    policy = policy_of(recompute) or policy_of_marks(functions_of(roots))
    if policy is None:
        return gradients

    def program_of(gradients: list[Variable]) -> Program:
        running = runs_as(gradients)
        return running if isinstance(running, Program) else linearize(running, device=device_of(running)).program

    graphs = Graphs(roots, gradients, program_of, policy.mark, emit)
    if recompute is False:
        return graphs.whole[0].plain.gradients
    search = Search(graphs)
    return (policy.choose(search) if search.wanted else search.plain).gradients


class Search:
    """The candidates for a policy.

    Args:
        graphs: The graphs to make plans for.
    """

    def __init__(self, graphs: Graphs) -> None:
        self._graphs = graphs
        self.plain = graphs.whole[0].plain
        """The graph without recomputation."""
        self.wanted = any([source.forward.wanted for source in graphs.whole])
        """Whether the gradients read anything of the forward pass."""

    # ---------------------------------------------------------------- which is best

    def smallest(self, candidates: Iterable[Candidate]) -> Candidate:
        """The candidate that takes the least memory by its structure; the plain graph if that takes no more, as the
        compiler reports unless they are far apart."""
        for candidate in _ranked(candidates)[:MOST_FINALISTS]:
            if candidate.sparing is not None:
                candidate = min(candidate, candidate.sparing(), key=lambda c: (c.peak, c.extra))
            if self.plain.peak * CLOSE < candidate.peak:
                break
            far_apart = candidate.peak * CLOSE_TO_PLAIN < self.plain.peak
            if far_apart or self.bytes_of(candidate) < self.bytes_of(self.plain):
                return candidate
        return self.plain

    def fitting(self, nbytes: float) -> tuple[bool, Candidate]:
        """The candidate with the least arithmetic among those that fit, or else the smallest; and whether it fits."""
        if self.plain.peak * CLOSE_TO_PLAIN <= nbytes or self.bytes_of(self.plain) <= nbytes:
            return True, self.plain
        # Costs that the structure does not show are about the same in all candidates.
        most = nbytes * self.plain.peak / self.bytes_of(self.plain)
        tried = list(self.graded(lambda c: c.peak > most))
        fitting = sorted([c for c in tried if c.peak <= most], key=lambda c: (c.extra, c.peak))
        for candidate in fitting[: MOST_FINALISTS - 1]:
            if self.bytes_of(candidate) <= nbytes:
                return True, candidate
        best = self.smallest(tried)
        return self.bytes_of(best) <= nbytes, best

    def bytes_of(self, candidate: Candidate) -> int:
        """The candidate's temporaries as reported by the compiler, or else the predicted peak."""
        nbytes = executables.temporary_bytes(candidate.program)
        return candidate.peak if nbytes is None else nbytes

    # ---------------------------------------------------------------- candidates

    def nested(self, levels: int) -> Iterator[Candidate]:
        """Plans with this many levels that recompute everything."""
        for source in self._graphs.whole:
            yield from _nested(source, levels)
        depth = levels
        while depth:  # fewer levels may take less: each copies the scanned arrays
            cut = self._graphs.cut(depth)
            yield from [source.plain for source in cut]
            for source in cut[:1]:
                yield from _nested(source, levels)
            depth //= 2

    def graded(self, more: Callable[[Candidate], bool]) -> Iterator[Candidate]:
        """Plans of every kind, by increasing arithmetic, for as long as `more` is true of a candidate: then plans with
        more arithmetic than its own are tried."""
        yield from self._in_a_row(lambda f: not f.heavy)
        for source in self._graphs.whole:
            full = list(_nested(source, 1))
            yield from full
            least = min(full, key=lambda c: c.extra)
            if not more(least):
                low, high = 0.0, 1.0
                for _ in range(5):
                    middle = (low + high) / 2
                    candidate = source.partly(middle)
                    yield candidate
                    low, high = (middle, high) if more(candidate) else (low, middle)
            for levels in range(2, MOST_LEVELS + 1):
                if not more(least._replace(extra=least.extra * levels / (levels - 1))):
                    break
                full = list(_nested(source, levels))
                yield from full
                least = min(full, key=lambda c: c.extra)
        for levels in range(1, MOST_LEVELS + 1):
            cut = self._graphs.cut(levels)
            yield from [source.plain for source in cut]
            for source in cut[:1]:
                yield from _nested(source, 1)
            if not all([more(source.plain) for source in cut]) or not cut:
                break

    def restricted(self, named: Named) -> Iterator[Candidate]:
        """Plans that recompute only functions for which `named` is true."""
        yield from [source.plain for source in self._graphs.cut(1, named)]
        for source in self._graphs.whole:
            dropped = frozenset(filter(named, source.forward.droppable))
            if dropped:
                yield source.following(by_blocks(source.forward.schedule, dropped))
        yield from self._in_a_row(named)

    def _in_a_row(self, named: Named) -> Iterator[Candidate]:
        for source in self._graphs.whole:
            if any(map(named, source.forward.droppable)):
                units = source.forward.units
                for count in _counts(math.sqrt(units), units / 2, units):
                    yield source.cut(uniform_plan(min(count, MOST_SEGMENTS)), named)


def _nested(source: PlanSource, levels: int) -> Iterator[Candidate]:
    units = source.forward.units
    slots = slots_for(levels, units)
    for count in _counts(slots * 0.5, slots * 0.7, slots):
        yield source.cut(binomial_plan(levels, count))
    if levels == 1:
        for count in _counts(*[math.sqrt(units) * factor for factor in (0.5, 1.0, 1.5)]):
            yield source.cut(uniform_plan(count))


def _counts(*about: float) -> list[int]:
    """Numbers of segments near these values."""
    return sorted({max(2, round(n)) for n in about})


def _ranked(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates, each program once, by increasing predicted memory."""
    return sorted({c.program: c for c in candidates}.values(), key=lambda c: (c.peak, c.extra))
