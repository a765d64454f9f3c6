"""Candidates: gradient graphs with recomputation, the graphs that plans are made for, and their costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..extend import ControlOp, Function, Program, Variable, functions_of
from .liveness import timeline
from .plan import (
    SHARES,
    Forward,
    Nest,
    Plan,
    arithmetic,
    binomial_plan,
    in_order,
    partly,
    sizes_of,
    slots_for,
)
from .rebuild import Rebuilt, contains_recomputed, reading_originals, rebuild

ProgramOf = Callable[[list[Variable]], Program]
"""The program that runs with these gradients."""

Emit = Callable[[Callable[[Function], tuple[int, ...]]], list[Variable]]
"""Emits the gradients, with loops cut into segments of given sizes."""

Named = Callable[[Function], Any]
"""Whether a function may be recomputed."""


def uncut_steps(f: Function) -> int | None:
    """The number of steps of a loop, 0 if its segments are already chosen; None for other functions."""
    return f.op.steps_to_cut(f) if isinstance(f.op, ControlOp) else None


class Candidate(NamedTuple):
    """A graph of the gradients, and its costs."""

    gradients: list[Variable]
    program: Program
    """The program to compile if it is chosen."""
    peak: int
    """Its temporaries in bytes, estimated from its structure."""
    extra: float = 0.0
    """The recomputed arithmetic, as a fraction of the plain graph's."""
    sparing: Callable[[], Candidate] | None = None
    """Makes a variant of the plan with less arithmetic, which may take more memory."""


class PlanSource:
    """A graph of gradients before any plan is followed, and the plans that it can follow.

    Args:
        graphs: The graphs that it is one of.
        gradients: The gradients.
        again: Arithmetic that is recomputed before any plan.
    """

    def __init__(self, graphs: Graphs, gradients: list[Variable], again: int = 0) -> None:
        self._of, self._gradients, self._again = graphs, gradients, again
        before = frozenset(graphs.known)
        emitted = [f for f in functions_of(gradients) if f not in before]
        order = max([e.order for e in emitted], default=0)
        # Recomputed values that stand for functions of a gradient below (`reading_originals`) belong to that gradient.
        standing = [e for e in emitted if e.order < order]
        self._known = [*graphs.known, *standing]
        self._arithmetic = max(1, sum(map(arithmetic, (*graphs.known, *emitted))))
        schedule = in_order([*graphs.outputs, *[f.outputs[0] for f in standing]])
        self.forward = Forward(schedule, graphs.outputs, [e for e in emitted if e.order == order])
        """The functions that existed before, in execution order."""
        self.plain = self._weighed(Rebuilt(gradients, [], False))

    def cut(self, nest: Nest, named: Named = lambda f: True) -> Candidate:
        """The candidate that recomputes, by segments, the functions for which `named` is true."""
        return self.following(self.forward.plan(nest, frozenset(filter(named, self.forward.droppable))))

    def partly(self, share: float) -> Candidate:
        """The candidate that recomputes the first `share` of the forward pass, and keeps the rest."""
        nest = partly(binomial_plan(1, slots_for(1, self.forward.units)), share)
        plan = self.forward.plan(nest, self.forward.droppable)
        rest = plan.tree.end - 1
        return self.following(plan._replace(dropped=frozenset([f for f in plan.dropped if plan.segment[f] != rest])))

    def following(self, plan: Plan) -> Candidate:
        """The graph that follows a plan."""
        rebuilt = rebuild(self._known, self._of.outputs, self._gradients, plan, self._of.mark)
        candidate, other = self._weighed(rebuilt), plan._replace(bases_stay=True)
        is_last = plan.bases_stay or rebuilt.sums_split
        return candidate if is_last else candidate._replace(sparing=lambda: self.following(other))

    def _weighed(self, rebuilt: Rebuilt) -> Candidate:
        again = self._again + sum(map(arithmetic, rebuilt.again))
        program = self._of.program_of(rebuilt.gradients)
        extra = again / (self._arithmetic - self._again) if again else 0.0
        return Candidate(rebuilt.gradients, program, timeline(program).peak, extra)


class Graphs:
    """The graphs of some gradients that plans are made for: as they were emitted, and with loops cut into segments.

    A loop is one function, so no plan cuts it. Its backward rule does, if it is told how many steps to take at a time;
    so the gradients are emitted again for each size of segments.

    Args:
        outputs: The differentiated Variables.
        gradients: Their gradients, as emitted.
        program_of: The program that runs with such gradients.
        mark: The mark of recomputing functions.
        emit: Emits the gradients with loops cut; None if that is impossible.
    """

    def __init__(
        self, outputs: Sequence[Variable], gradients: list[Variable], program_of: ProgramOf, mark: Any = None,
        emit: Emit | None = None,
    ) -> None:  # fmt: skip
        self.outputs, self.program_of, self.mark, self._emit = outputs, program_of, mark, emit
        self.known = functions_of(outputs)
        """The functions that existed before the gradients, in topological order."""
        self.whole = [PlanSource(self, gradients)]
        """The graph as it was emitted, and the one that reads no recomputed values, if that takes less memory; the
        smaller one comes first."""
        if contains_recomputed(self.known):
            other = PlanSource(self, reading_originals(self.known, gradients))
            if other.plain.peak < self.whole[0].plain.peak:
                self.whole.insert(0, other)
        self._cut: dict[tuple[tuple[Function, tuple[int, ...]], ...], PlanSource] = {}

    def cut(self, levels: int, named: Named = lambda f: True) -> list[PlanSource]:
        """A graph for each of several sizes, in which the loops for which `named` is true are cut to this many levels;
        the smallest comes first."""
        sources: dict[int, PlanSource] = {}
        loops = [(f, steps) for f in self.known if (steps := uncut_steps(f)) and named(f)] if self._emit else []
        for share in SHARES:
            of_loops = [(f, sizes_of(steps, levels, share)) for f, steps in loops]
            sizes = tuple([(f, of_loop) for f, of_loop in of_loops if of_loop])
            if sizes:
                source = self._cut[sizes] = self._cut.get(sizes) or self._with_segments(dict(sizes))
                sources[id(source)] = source
        return sorted(sources.values(), key=lambda source: source.plain.peak)

    def _with_segments(self, sizes: dict[Function, tuple[int, ...]]) -> PlanSource:
        assert self._emit is not None
        gradients = self._emit(lambda f: sizes.get(f, ()))
        before = frozenset(self.known)
        for f in functions_of(gradients):
            if f not in before and uncut_steps(f) == 0:
                f.mark = self.mark
        return PlanSource(self, gradients, sum([len(of_loop) * arithmetic(f) for f, of_loop in sizes.items()]))
