"""The modes by which a gradient can be built.

    reverse      the reverse pass from the outputs (walk.py); always open
    forward      a tangent along what is there already, where each element depends on one of the input's (symmetry.py),
                 or one for each of a few coordinates (coordinates.py)
    symmetric    a tangent along a gradient that is there already, where second derivatives commute (symmetry.py)

With the last two each order adds as much as the one before and no more, so they are taken where they are open.
"""

from __future__ import annotations

from typing import NamedTuple

from ..graph import Variable, build_options, contained, switch
from ..graph.function import watched
from ..rewrite.builder import builder_for, emitting
from .coordinates import built_forward, by_coordinates
from .equal_functions import Equal, equal_functions
from .request import Aggregate, Mode, Task
from .symmetry import NotApplicable, forward, symmetric
from .walk import Grad, Retained, order_of, sum_of, sum_of_all


class Built(NamedTuple):
    """Gradients, and how they came about."""

    gradients: list[Variable]
    mode: Mode
    unknown: str = ""
    """Why they are not known to be what calculus says; empty if they are."""


@contained
def gradients(
    task: Task, aggregate: Aggregate | None = None, retained: Retained | None = None, coordinates: bool = False
) -> Built:
    """Returns the gradients, by the mode that makes the smallest graph at higher orders.

    Args:
        task: What is differentiated by what.
        aggregate: Sums the gradients that arrive at one Variable, in place of `F.add_n`.
        retained: A list that takes every Variable on the way together with its gradient.
        coordinates: Whether gradients of these gradients are to come, for which forward mode is better.
    """
    if build_options().emitting.builder is None:
        switch(builder=builder_for(task.functions))
    walked, sums = None, _Sums(aggregate)
    if aggregate is not None or retained is not None:
        # Only the reverse pass meets what is to be kept, or added up in another way. It is done besides, where what the
        # next order is built on can be had in a better mode.
        walk = Grad(aggregate=aggregate and sums, stop_ids=task.stop_ids, retained=retained, stands_for=task.stands_for)
        walked = in_reverse(task, walk)
    unknown = "" if sums.are_sums else "aggregate is not seen to make the sum"
    reason = unknown or obstacle_to_all(task)
    if not reason:
        try:
            return Built(forward(task), Mode("forward"))
        except NotApplicable as closed:
            reason = str(closed)
        derived = any([f.order for f in task.functions])
        if coordinates or (derived and built_forward(task)):
            try:
                return Built(by_coordinates(task), Mode("forward"))
            except NotApplicable:
                pass  # what has been said of `forward` holds for this one too
        if derived:
            try:
                return Built(symmetric(task), Mode("symmetric"))
            except NotApplicable as closed:
                reason = str(closed)
    if walked is None:
        walked = in_reverse(task, Grad(stop_ids=task.stop_ids, equal=taken_for_one(task), stands_for=task.stands_for))
    return Built(walked, Mode("reverse", reason), unknown)


def obstacle_to_all(task: Task) -> str:
    """Returns what closes all modes but the reverse pass; an empty string if nothing does."""
    options = build_options()
    if options.watching.hooks:
        return "hooks watch"
    if options.watching.debug is not None:
        return "debug mode is on"
    if not options.emitting.simplify:
        return "simplification is off"
    if not any([f.order or f.op.cost is not None for f in task.functions]):
        return "no product of matrices is on the way"  # which higher orders could share with the first
    return ""


def taken_for_one(task: Task) -> Equal:
    """Returns the functions in a task that others stand for."""
    if build_options().emitting.simplify is not True or watched() or not any([f.order for f in task.functions]):
        return {}
    return equal_functions(task.functions, {id(x) for x in (*task.inputs, *task.outputs)}.union(task.stop_ids))


def in_reverse(task: Task, walk: Grad) -> list[Variable]:
    """Returns the gradients by the reverse pass."""
    with emitting(task.functions, order_of(task.path)) as builder:
        return walk.walk(builder, task.path, task.active, task.outputs, task.inputs, task.seeds)


class _Sums:
    """An aggregate, and whether all that it has made so far were sums: the builder makes equal sums one Variable."""

    def __init__(self, aggregate: Aggregate | None) -> None:
        self._aggregate = aggregate or sum_of
        self.are_sums = True

    def __call__(self, gradients: list[Variable]) -> Variable:
        result = self._aggregate(gradients)
        self.are_sums = self.are_sums and (result is sum_of_all(gradients) or result is sum_of(gradients))
        return result
