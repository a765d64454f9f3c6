"""Graphs of a gradient that compute something again, and the graph that computes nothing again: what they cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from ...execution.program import Program
from ...graph import Function, Variable, functions_of
from .costs import arithmetic
from .cuts import Forward, Nest, binomial, in_order, in_sequence, partly, slots_for
from .liveness import timeline
from .overlay import overlaid
from .plan import Plan
from .rebuild import Rebuilt, rebuild
from .reuse import contains_recomputed, reading_originals

ProgramOf = Callable[[list[Variable]], Program]
"""The program that runs with these gradients."""


class Candidate(NamedTuple):
    """A graph of the gradients, and what it costs."""

    gradients: list[Variable]
    program: Program
    """What is compiled if it is taken."""
    peak: int
    """Bytes of temporaries of that, as its structure has it."""
    extra: float = 0.0
    """Arithmetic of what is computed again, as a share of that of the plain graph."""
    sparing: Callable[[], Candidate] | None = None
    """What comes of the same plan with less arithmetic; that may take more memory."""


class Cutting(NamedTuple):
    """A way to cut a graph: along the order in which it runs, or through the model that it runs through repeatedly."""

    forward: Forward
    follow: Callable[[Plan], Candidate]

    def __call__(self, nest: Nest, dropped: Callable[[Function], Any] = lambda f: True) -> Candidate:
        """Returns what comes of computing again, by segments, the functions for which `dropped` is true."""
        return self.follow(self.forward.plan(*nest, frozenset(filter(dropped, self.forward.droppable))))

    def partly(self, share: float) -> Candidate:
        """Returns what comes of computing the first `share` of the forward pass again, and keeping the rest."""
        nest = binomial(1, slots_for(1, self.forward.units))
        plan = self.forward.plan(*partly(nest, share), self.forward.droppable)
        rest = plan.tree.end - 1
        return self.follow(plan._replace(dropped=frozenset([f for f in plan.dropped if plan.segment[f] != rest])))


class Source:
    """The graph of gradients before any plan is followed, and the ways to cut it.

    Args:
        outputs: What was differentiated.
        known: Its functions, inputs before readers.
        gradients: The gradients.
        program_of: The program that runs with such gradients.
        mark: The mark of functions that compute something again.
        again: Arithmetic of what is computed again before any plan.
    """

    def __init__(
        self,
        outputs: Sequence[Variable],
        known: Sequence[Function],
        gradients: list[Variable],
        program_of: ProgramOf,
        mark: Any = None,
        again: int = 0,
    ) -> None:
        self._outputs = outputs
        self._gradients = gradients
        self._program_of = program_of
        self._mark = mark
        self._again = again
        before = frozenset(known)
        emitted = [f for f in functions_of(gradients) if f not in before]
        order = max([e.order for e in emitted], default=0)
        # What stands for a function of a gradient below (reuse.py) belongs to that one.
        standing = [e for e in emitted if e.order < order]
        self._known = [*known, *standing]
        self._emitted = [e for e in emitted if e.order == order]
        self.schedule = in_order([*outputs, *[f.outputs[0] for f in standing]])
        """The functions that were there before, in the order in which they run."""
        self.plain = self._weighed(Rebuilt(gradients, [], False))

    @cached_property
    def cuttings(self) -> list[Cutting]:
        """The ways to cut it; the first is that along the order in which it runs."""
        outputs, gradients, mark = self._outputs, self._gradients, self._mark
        found = [Cutting(in_sequence(self.schedule, outputs, self._emitted), self.following)]
        overlay = overlaid(outputs, self._known, gradients, self._emitted)
        if overlay is not None:
            found.append(
                Cutting(overlay.forward, lambda p: self._weighed(overlay.rebuilt(outputs, gradients, p, mark)))
            )
        return found

    def following(self, plan: Plan) -> Candidate:
        """The graph that follows a plan for the order in which it runs."""
        rebuilt = rebuild(self._known, self._outputs, self._gradients, plan, self._mark)
        candidate = self._weighed(rebuilt)
        if plan.bases_stay or rebuilt.sums_split:
            # Where gradients of a shared weight are summed, XLA has been seen to gather all of them in one loop then.
            return candidate
        return candidate._replace(sparing=lambda: self.following(plan._replace(bases_stay=True)))

    @cached_property
    def _arithmetic(self) -> int:
        return max(1, sum([arithmetic(f) for f in (*self._known, *self._emitted)]))

    def _weighed(self, rebuilt: Rebuilt) -> Candidate:
        again = self._again + sum([arithmetic(f) for f in rebuilt.again])
        program = self._program_of(rebuilt.gradients)
        extra = again / (self._arithmetic - self._again) if again else 0.0
        return Candidate(rebuilt.gradients, program, timeline(program).peak, extra)


def sources_of(
    outputs: Sequence[Variable], gradients: list[Variable], program_of: ProgramOf, mark: Any = None
) -> list[Source]:
    """The graph of gradients as it was emitted, and the one that reads no recomputed values, if that takes less memory:
    the one that takes least comes first."""
    known = functions_of(outputs)
    emitted = Source(outputs, known, gradients, program_of, mark)
    if not contains_recomputed(known):
        return [emitted]
    other = Source(outputs, known, reading_originals(known, gradients), program_of, mark)
    return [other, emitted] if other.plain.peak < emitted.plain.peak else [emitted]

