"""The functions of a backward pass by the segments that they wait for."""

from __future__ import annotations

from typing import Any

import nngrad.functions as F

from ...graph import Function, Op, RuleCall, Variable, create
from .plan import Plan

NEVER = 1 << 60
"""The stage of what depends on nothing that is computed again."""

_CONSTANT = NEVER + 1
"""The stage of what depends on no input at all."""


def created_like(
    f: Function, op: Op, inputs: tuple[Variable, ...], arguments: tuple[Any, ...] = (), mark: Any = None
) -> tuple[Variable, ...]:
    """The outputs of `op` on `inputs`: made at the place of `f`, of its order, and writing to no leaf."""
    origin = f.origin if f.order else f  # what sums gradients was emitted for no function
    result = create(op, inputs, arguments, (), None if origin is None else RuleCall(origin, ()), f.order)
    outputs: tuple[Variable, ...] = result if isinstance(result, tuple) else (result,)
    new = outputs[0].parent
    assert new is not None
    new.context, new.mark = f.context, mark
    return outputs


class BackwardPass:
    """The functions of a backward pass by their stages.

    The *stage* of a function is the first of the segments (in the order of the forward pass) whose recomputed values
    it depends on; so it can run when that one is computed again, and all later ones were before.

    Args:
        plan: What is computed again.
        emitted: The functions of the backward pass, inputs before readers.
    """

    def __init__(self, plan: Plan, emitted: list[Function]) -> None:
        self._plan = plan
        self._stage: dict[Function, int] = {}
        self._sums: dict[Function, Variable] = {}
        self.of_segment: dict[int, list[Function]] = {}
        """The functions that wait for a segment, inputs before readers."""
        lowest: dict[Variable, int] = {}
        for f in emitted:
            for g in self._parts(f):
                inputs = [self.split(x) for x in g.inputs]
                stage = self._stage[g] = min(map(self._stage_of, inputs), default=_CONSTANT)
                self.of_segment.setdefault(stage, []).append(g)
                for x in inputs:
                    if x.parent in self._stage:
                        lowest[x] = min(stage, lowest.get(x, stage))
        spans = [(self._stage[x.parent], low, x) for x, low in lowest.items()]  # type: ignore[index]
        self._spans = [(made, low, x) for made, low, x in spans if low < made <= NEVER and x.size]

    @property
    def splits_sums(self) -> bool:
        """Whether there are sums that were split into partial ones."""
        return bool(self._sums)

    def split(self, x: Variable) -> Variable:
        """`x`, or the last of the partial sums that it was split into."""
        return x if x.parent is None else self._sums.get(x.parent, x)

    def arriving(self, end: int) -> list[Variable]:
        """Gradients that pass from the segments from `end` on to those before it: known without any of the latter."""
        return [x for made, low, x in self._spans if low < end <= made]

    def _stage_of(self, x: Variable) -> int:
        f = x.parent
        if f in self._stage:
            return self._stage[f]
        return self._plan.segment[f] if f in self._plan.dropped else NEVER

    def _parts(self, f: Function) -> list[Function]:
        """`f`; or, where it sums gradients of several stages, partial sums that need no more than one stage each.

        A parameter that is used at every step of a long sequence has its gradient from all of them. Summed at the
        end, all the parts would be alive until then.
        """
        terms: dict[int, list[Variable]] = {}
        for x in map(self.split, f.inputs if f.op is F.add_n else ()):
            terms.setdefault(min(NEVER, self._stage_of(x)), []).append(x)
        if len(terms) < 2:
            return [f]
        parts: list[Function] = []
        total: list[Variable] = []
        for stage in sorted(terms, reverse=True):
            total += terms[stage]
            if len(total) > 1:
                total = [created_like(f, F.add2 if len(total) == 2 else F.add_n, tuple(total))[0]]
                parts.append(total[0].parent)  # type: ignore[arg-type]
        self._sums[f] = total[0]
        return parts
