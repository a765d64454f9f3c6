"""What is differentiated by what, as a graph; and what the results of that remember of it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import NamedTuple

from ..graph import Function, Variable, among, functions_of
from .request import Seeds


class Task(NamedTuple):
    """The gradients of <seeds, outputs> with respect to inputs, and what lies between the two."""

    outputs: Sequence[Variable]
    inputs: Sequence[Variable]
    seeds: Seeds
    """The gradient at each output; None for ones."""
    stops: Sequence[Variable]
    """Variables that count as constants, besides those with `need_grad` set to False."""
    functions: list[Function]
    """All that the outputs depend on, lowest rank first."""
    path: list[Function]
    """Those on some way from the inputs."""
    active: set[int]
    """The ids of the Variables on some way."""

    @property
    def ends(self) -> frozenset[int]:
        """The ids of the stops."""
        return frozenset([id(x) for x in self.stops])


def task_of(
    outputs: Sequence[Variable], inputs: Sequence[Variable], seeds: Seeds, stops: Sequence[Variable] = ()
) -> Task:
    """The task, with what lies between outputs and inputs."""
    functions = functions_of(outputs)
    path, active = among(functions, inputs, ends=[id(x) for x in stops])
    return Task(outputs, inputs, seeds, stops, functions, path, active)


class Route(NamedTuple):
    """By which route a gradient was built."""

    name: str
    """'reverse', 'forward' or 'symmetric'."""
    reason: str = ""
    """What the first obstacle on a better one was."""


class Derivation:
    """A task that is done: its results are the gradients of <seeds, outputs> with respect to each of `inputs`."""

    __slots__ = ("inputs", "outputs", "results", "seeds", "stops")

    def __init__(self, task: Task, results: Sequence[Variable]) -> None:
        self.outputs, self.inputs, self.seeds = task.outputs, task.inputs, task.seeds
        self.stops = task.stops and relevant_stops(task)
        self.results = [weakref.ref(gx) for gx in results]

    def gradient(self, x: Variable) -> Variable | None:
        """The gradient with respect to `x`, while it lives."""
        for each, result in zip(self.inputs, self.results, strict=True):
            if each is x:
                return result()
        return None


def relevant_stops(task: Task) -> list[Variable]:
    """Those of the stops that keep a gradient from something."""
    _, active = among(task.functions, task.inputs)
    return [x for x in task.stops if x.parent is not None and id(x) in active]


class Remembered(NamedTuple):
    """What a result of `grad` knows of itself."""

    derivation: Derivation | None
    """What it is a derivative of; None where it cannot be said to be one."""
    input: Variable | None
    """With respect to what."""
    route: Route
    unknown: str = ""
    """Why it cannot be said."""
    before: tuple[Remembered, ...] = ()
    """What is remembered of the gradients in what was differentiated, where there is no derivation to look it up in."""


def remember(task: Task, route: Route, unknown: str, results: Sequence[Variable]) -> None:
    """Let `results` know what they are the gradients of, or why that is `unknown`."""
    if unknown:
        remembered = Remembered(None, None, route, unknown, tuple(remembered_in(task.functions)))
        for gx in results:
            gx._derived = remembered
    else:
        derivation = Derivation(task, results)
        for x, gx in zip(task.inputs, results, strict=True):
            gx._derived = Remembered(derivation, x, route)


def remembered_of(g: Variable) -> Remembered | None:
    """What `g` knows of itself; None if it is no result of `grad`."""
    remembered: Remembered | None = getattr(g, "_derived", None)
    return remembered


def remembered_in(functions: Sequence[Function]) -> list[Remembered]:
    """What the results of `grad` among the outputs of `functions` know of themselves, each once."""
    found = [
        remembered
        for f in functions
        if f.order
        for ref in f._outputs
        for y in [ref()]
        if y is not None and (remembered := remembered_of(y)) is not None
    ]
    return list({(id(each.derivation), each.route): each for each in found}.values())
