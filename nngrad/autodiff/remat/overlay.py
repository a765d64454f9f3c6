"""Gradients of gradients: the passes of a graph through its model, laid over each other.

A graph that contains a gradient runs through the model more than once: forward, back in the gradient, forward again in
what is emitted for the gradient's own functions, and back at last. Each pass reads values of those before it, so a cut
through one pass after the other would be crossed by nearly all of them. A cut through the *model* is crossed only by
what each pass hands on there. So every function has the place of the forward function that its backward rule was
called for, however indirectly; and all passes but the last are computed again for the last, segment by segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from ...graph import Function, Variable
from .cuts import Forward, in_order
from .plan import Plan, in_a_row
from .rebuild import Rebuilt, rebuild


class Overlay(NamedTuple):
    """The passes through a model."""

    forward: Forward
    """All but the last."""
    known: frozenset[Function]
    """Those of `forward` that were there before: the pass that was emitted for the gradient is not among them."""
    upward: frozenset[Function]
    """That pass."""
    top: Variable
    """Where it ends."""

    def rebuilt(self, outputs: Sequence[Variable], gradients: list[Variable], plan: Plan, mark: Any) -> Rebuilt:
        """The gradients by a graph that computes again, for the last pass and for that before it, what `plan` says."""
        last = rebuild(self.known | self.upward, outputs, gradients, plan, mark, awaited=[self.top])
        # The same segments in the other order, for the pass that runs the other way.
        end = plan.tree.end
        segment = {f: end - 1 - n for f, n in plan.segment.items() if f in self.known}
        other = plan._replace(segment=segment, dropped=plan.dropped & self.known, tree=in_a_row(end))
        before = rebuild(self.known, outputs, last.gradients, other, mark, readers=self.upward)
        return before._replace(again=last.again + before.again)


def overlaid(
    outputs: Sequence[Variable], known: Sequence[Function], gradients: Sequence[Variable], emitted: Sequence[Function]
) -> Overlay | None:
    """The passes of `outputs` and `gradients`; None where `outputs` contain no gradient.

    Args:
        outputs: What was differentiated.
        known: Its functions, inputs before readers.
        gradients: Its gradients.
        emitted: Their functions, inputs before readers.
    """
    below: set[Function | None] = set()
    """What belongs to a gradient in `outputs`, or depends on one."""
    for f in known:
        if f.order or any([x.parent in below for x in f.inputs]):
            below.add(f)
    upward = _emitted_for(below, emitted)
    place = {f: t for t, f in enumerate(f for f in in_order(outputs) if f.origin is None and f not in below)}
    _lay(place, known, min)
    _lay(place, [e for e in emitted if e in upward], max)
    if upward.isdisjoint(place):
        return None
    originals = {f: m for f in known if f.order == 0 and (m := _root(f)) is not f and m in place and m.op is f.op}
    forward = Forward(
        place, {y.parent for y in (*outputs, *gradients)}, [e for e in emitted if e not in upward], originals
    )
    top = max([e for e in upward if e in place], key=attrgetter("rank")).outputs[0]
    return Overlay(forward, frozenset(known), upward, top)


def _root(f: Function) -> Function:
    """The function of the model that `f` was emitted for."""
    while (origin := f.origin) is not None:
        f = origin
    return f


def _emitted_for(functions: set[Function | None], emitted: Iterable[Function]) -> frozenset[Function]:
    """Those of `emitted` that were emitted for `functions` and depend on nothing that was emitted for others."""
    others: set[Function | None] = set()
    found: list[Function] = []
    for e in emitted:
        if (e.origin is None or e.origin in functions) and not any([x.parent in others for x in e.inputs]):
            found.append(e)
        else:
            others.add(e)
    return frozenset(found)


def _lay(place: dict[Function, int], functions: Iterable[Function], nearest: Callable[[list[int]], int]) -> None:
    """Give `functions` places: a sum of gradients, which was emitted for none in particular, where it ends."""
    for f in functions:
        root = _root(f)
        if root in place:
            place.setdefault(f, place[root])
        elif f.order:
            places = [place[p] for x in f.inputs if (p := x.parent) in place and p.order == f.order]
            if places:
                place[f] = nearest(places)
