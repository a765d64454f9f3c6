"""Plans: what is computed again, and which of that each function of the backward pass waits for."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import nngrad.functions as F

from ...graph import Function, Op, RuleCall, Variable, create

NEVER = 1 << 60
"""The segment of what depends on nothing that is computed again."""


class Node(NamedTuple):
    """A stretch of segments, numbered in the order of the forward pass, and the stretches that it is made of.

    What the last of its parts needs is computed together with the values on which the parts before it are based;
    each of those is computed again from there, once the gradient has come back to its end.
    """

    first: int
    end: int
    """One past the last of its segments."""
    parts: tuple[Node, ...] = ()
    """In the order of the forward pass; none where all of it is computed at once."""


class Plan(NamedTuple):
    """What is computed again, and when."""

    segment: dict[Function, int]
    """The segment that each forward function belongs to."""
    dropped: frozenset[Function]
    """The functions whose results are not kept where the gradient needs them; all others' are."""
    tree: Node
    originals: Mapping[Function, Function] = MappingProxyType({})
    """For functions that compute something again already: what they compute again. They are read as that one."""
    bases_stay: bool = False
    """Whether a value that the segment after its own is computed again from stays for the gradient of its own segment,
    which is next. That is less arithmetic, and in some graphs more memory."""


def created_like(
    f: Function, op: Op, inputs: tuple[Variable, ...], arguments: tuple[Any, ...] = ()
) -> tuple[Variable, ...]:
    """The outputs of `op` on `inputs`: made at the place of `f`, of its order, and writing to no leaf."""
    origin = f.origin if f.order else f  # what sums gradients was emitted for no function
    call = None if origin is None else RuleCall(origin, ())
    result = create(op, inputs, arguments, (), call, f.order)
    outputs: tuple[Variable, ...] = result if isinstance(result, tuple) else (result,)
    outputs[0].parent.context = f.context  # type: ignore[union-attr]
    return outputs


class BackwardSchedule:
    """The functions of a backward pass by the segments that they wait for.

    The *stage* of a function is the first of the segments (in the order of the forward pass) whose recomputed values
    it depends on; so it can run when that one is computed again, and all later ones were before.

    Args:
        plan: What is computed again.
        emitted: The functions of the backward pass, inputs before readers.
    """

    def __init__(self, plan: Plan, emitted: list[Function]) -> None:
        self._plan = plan
        self._stage: dict[Function, int] = {}
        self._reach: dict[Function, int] = {}
        """The first of the segments that it has read anything of, kept or not: how far back the gradient has come."""
        self._constant: set[Function] = set()
        self._sums: dict[Function, Variable] = {}
        self.of_segment: dict[int, list[Function]] = {}
        """The functions that wait for a segment, inputs before readers."""
        self._read_at: dict[Variable, int] = {}
        """The lowest stage among the readers of an emitted Variable."""
        for f in emitted:
            for g in self._parts(f):
                self._enter(g)
        spans = [(self._stage[x.parent], low, x) for x, low in self._read_at.items()]  # type: ignore[index]
        self._waiting = sorted([span for span in spans if span[1] < span[0]], key=itemgetter(0))
        self._crossing: list[tuple[int, int, Variable]] = []

    @property
    def sums_split(self) -> bool:
        """Whether there are sums that were split into partial ones."""
        return bool(self._sums)

    def split(self, x: Variable) -> Variable:
        """`x`, or the last of the partial sums that it was split into."""
        return x if x.parent is None else self._sums.get(x.parent, x)

    def arriving(self, end: int) -> list[Variable]:
        """Gradients that pass from the segments from `end` on to those before it: known without any of the latter.

        It is to be asked for lower and lower ends.
        """
        while self._waiting and self._waiting[-1][0] >= end:
            self._crossing.append(self._waiting.pop())
        self._crossing = [span for span in self._crossing if span[1] < end]
        found = [x for _, _, x in self._crossing if x.parent not in self._constant and x.size]
        near = [x for x in found if self._reach[x.parent] <= end]  # type: ignore[index]
        return near or sorted(found, key=lambda x: self._reach[x.parent])[:4]  # type: ignore[index]

    def _parts(self, f: Function) -> list[Function]:
        """`f`; or, where it sums gradients of several stages, partial sums that need no more than one stage each.

        A parameter that is used at every step of a long sequence has its gradient from all of them. Summed at the
        end, all the parts would be alive until then.
        """
        if f.op is not F.add_n:
            return [f]
        inputs = [self.split(x) for x in f.inputs]
        stages = [NEVER if x.parent is None else self._stage_of(x) for x in inputs]
        if len(set(stages)) < 2:
            return [f]
        parts: list[Function] = []
        total: Variable | None = None
        for stage in sorted(set(stages), reverse=True):
            terms = [x for x, s in zip(inputs, stages, strict=True) if s == stage]
            terms = terms if total is None else [total, *terms]
            if len(terms) > 1:
                total = created_like(f, F.add2 if len(terms) == 2 else F.add_n, tuple(terms))[0]
                parts.append(total.parent)  # type: ignore[arg-type]
            else:
                total = terms[0]
        assert total is not None
        self._sums[f] = total
        return parts

    def _stage_of(self, x: Variable) -> int:
        f = x.parent
        if f is None:
            return NEVER
        if f in self._stage:
            return self._stage[f]
        return self._plan.segment[f] if f in self._plan.dropped else NEVER

    def _enter(self, f: Function) -> None:
        inputs = [self.split(x) for x in f.inputs]
        stage = self._stage[f] = min([self._stage_of(x) for x in inputs], default=NEVER)
        reach = NEVER
        for x in inputs:
            p = x.parent
            if p is not None:
                reach = min(reach, self._reach[p] if p in self._stage else self._plan.segment.get(p, NEVER))
                if p in self._stage:
                    self._read_at[x] = min(stage, self._read_at.get(x, NEVER))
        self._reach[f] = reach
        if all([x.parent in self._constant for x in inputs]):
            self._constant.add(f)
        if stage != NEVER:
            self.of_segment.setdefault(stage, []).append(f)
