"""The ways to cut the graph of a gradient into segments, and the graphs that come of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from ..graph import Function, Variable, functions_of
from .costs import arithmetic
from .folds import folded
from .keeping import keeping_sums
from .liveness import in_order, predicted_peak
from .rebuild import Rebuilt, rebuild
from .segments import Forward, binomial, in_sequence, partly, slots_for
from .stages import Node, Plan

Cut = tuple[list[float], Node]
"""Shares of segments, and how these are nested."""


class Candidate(NamedTuple):
    """A graph of the gradients, and what it costs."""

    gradients: list[Variable]
    peak: int
    """Predicted bytes of temporaries of outputs and gradients."""
    extra: float = 0.0
    """Arithmetic of what is computed again, as a share of that of the plain graph."""
    sparing: Callable[[], Candidate] | None = None
    """What comes of the same plan with less arithmetic; that may take more memory."""


class Way(NamedTuple):
    """A way to cut a graph: along the order in which it runs, or through the model that it runs through repeatedly."""

    forward: Forward
    follow: Callable[[Plan], Candidate]

    def __call__(self, cut: Cut, dropped: Callable[[Function], Any] = lambda f: True) -> Candidate:
        """What comes of computing again, by segments, the functions for which `dropped` is true."""
        return self.follow(self.forward.plan(*cut, frozenset(filter(dropped, self.forward.droppable))))

    def partly(self, share: float) -> Candidate:
        """What comes of computing the first `share` of the forward pass again, and keeping the rest."""
        nest = binomial(1, slots_for(1, self.forward.units))
        plan = self.forward.plan(*partly(nest, share), self.forward.droppable)
        rest = plan.tree.end - 1
        return self.follow(plan._replace(dropped=frozenset([f for f in plan.dropped if plan.segment[f] != rest])))


class Gradients:
    """The graph of gradients before any plan is followed, and the ways to cut it.

    Args:
        outputs: What was differentiated.
        known: Its functions, inputs before readers.
        gradients: The gradients.
        mark: The mark of functions that compute something again.
    """

    def __init__(
        self, outputs: Sequence[Variable], known: Sequence[Function], gradients: list[Variable], mark: Any = None
    ) -> None:
        self._outputs = outputs
        self._gradients = gradients
        self._mark = mark
        before = frozenset(known)
        emitted = [f for f in functions_of(gradients) if f not in before]
        order = max([e.order for e in emitted], default=0)
        # What stands for a function of a gradient below (originals.py) belongs to that one.
        standing = [e for e in emitted if e.order < order]
        self._known = [*known, *standing]
        self._emitted = [e for e in emitted if e.order == order]
        self.schedule = in_order([*outputs, *[f.outputs[0] for f in standing]])
        """The functions that were there before, in the order in which they run."""
        plain = keeping_sums(known, gradients)
        self.plain = Candidate(plain, predicted_peak([*outputs, *plain]))
        self._arithmetic = max(1, sum([arithmetic(f) for f in (*self._known, *self._emitted)]))

    @cached_property
    def ways(self) -> list[Way]:
        """The ways to cut it; the first is that along the order in which it runs."""
        outputs, gradients, mark = self._outputs, self._gradients, self._mark
        found = [Way(in_sequence(self.schedule, outputs, self._emitted), self.following)]
        fold = folded(outputs, self._known, gradients, self._emitted)
        if fold is not None:
            found.append(Way(fold.forward, lambda p: self._judged(fold.rebuilt(outputs, gradients, p, mark))))
        return found

    @property
    def droppable(self) -> frozenset[Function]:
        """The functions of the forward pass that can be computed again."""
        return self.ways[0].forward.droppable

    def following(self, plan: Plan) -> Candidate:
        """The graph that follows a plan for the order in which it runs."""
        rebuilt = rebuild(self._known, self._outputs, self._gradients, plan, self._mark)
        candidate = self._judged(rebuilt)
        if plan.bases_stay or rebuilt.sums_split:
            # Where gradients of a shared weight are summed, XLA has been seen to gather all of them in one loop then.
            return candidate
        return candidate._replace(sparing=lambda: self.following(plan._replace(bases_stay=True)))

    def _judged(self, rebuilt: Rebuilt) -> Candidate:
        extra = sum([arithmetic(f) for f in rebuilt.again]) / self._arithmetic
        return Candidate(rebuilt.gradients, predicted_peak([*self._outputs, *rebuilt.gradients]), extra)
