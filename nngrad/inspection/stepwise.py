"""Run loops and branches step by step: each function of a body by itself, with concrete arrays, under a watcher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from ..extend import (
    Block,
    ControlOp,
    Function,
    Spec,
    Variable,
    build_options,
    contained,
    results_of,
    switch_to,
    x64_if,
)

Arrays = tuple[Any, ...]


class Step(NamedTuple):
    """A position in a function with bodies."""

    owner: Function
    """The function. If it is in a body itself, it was made for display, and is in no graph."""
    role: str
    """The role of the body."""
    number: int | None
    """The index of the step, from 0 along the scanned axis; None if there is only one."""

    def __str__(self) -> str:
        of = f"the {self.role} of {self.owner.op.name}"
        return f"in {of}" if self.number is None else f"in step {self.number} of {of}"


Trail = tuple[Step, ...]
"""Nested steps, outermost first."""


class MarkedArray(NamedTuple):
    """An array with a watcher's mark."""

    array: Any
    mark: Any


class Watcher(Protocol):
    """Watches functions run in bodies."""

    def marks(self, f: Function, inputs: Sequence[MarkedArray], results: Arrays, trail: Trail) -> Sequence[Any]:
        """A mark for each result of a function that has just run."""
        ...

    def of_part(self, mark: Any, array: Any) -> Any:
        """The mark for a part of an array with this mark."""
        ...


class _BodyGraph(NamedTuple):
    """A body as functions of a graph, to show to watchers."""

    functions: list[Function]
    held: list[Variable]
    """The Variables, kept alive by this object."""


@contained
def _graph_of(body: Block, names: Sequence[str], context: Any) -> _BodyGraph:
    switch_to(context=context)
    inputs = body.leaves()
    for x, name in zip(inputs, names, strict=True):
        x.name = name
    values = body.instantiate(inputs)
    functions = dict.fromkeys([y.parent for y in values if y.parent is not None])
    return _BodyGraph(list(functions), values)


class _Stepper:
    """Runs the bodies of one function, and nested ones.

    Args:
        owner: The function.
        watcher: The watcher.
        trail: Where the function itself runs.
        graphs: Bodies that have run, by id, with their graphs.
    """

    def __init__(
        self,
        owner: Function,
        watcher: Watcher,
        trail: Trail,
        graphs: dict[int, tuple[Block, _BodyGraph]],
    ) -> None:
        self._owner, self._watcher, self._trail, self._graphs = owner, watcher, trail, graphs

    def run(
        self, role: str, body: Block, inputs: Sequence[MarkedArray], number: int | None = None
    ) -> list[MarkedArray]:
        """The values of a body."""
        known = self._graphs.get(id(body))
        if known is None:
            f = self._owner
            assert isinstance(f.op, ControlOp)
            (names,) = [each.inputs for each in f.op.within(f.arguments, len(f.inputs)) if each.role == role]
            known = self._graphs[id(body)] = body, _graph_of(body, names, f.context)
        trail = (*self._trail, Step(self._owner, role, number))
        values: list[MarkedArray] = []
        for f, (_, _, ins) in zip(known[1].functions, body.steps, strict=True):
            given = body.picked(inputs, values, ins)
            try:
                values += self._results(f, given, trail)
            except Exception as error:
                if not isinstance(f.op, ControlOp):
                    error.add_note("\n  ".join([f"{f.op.name}, {location_text(f)}", *map(str, reversed(trail))]))
                raise
        return values

    def _results(self, f: Function, given: list[MarkedArray], trail: Trail) -> Sequence[MarkedArray]:
        hooks = build_options().watching.hooks if f.order == 0 else ()
        arrays = tuple([x.array for x in given])
        for hook in hooks:
            hook.forward_preprocess(f, arrays)
        if not isinstance(f.op, ControlOp):
            results = results_of(f, arrays)
            made: Sequence[MarkedArray] = [
                MarkedArray(*each)
                for each in zip(results, self._watcher.marks(f, given, results, trail), strict=True)
            ]
        else:  # recursion as deep as the user's nesting of loops
            made = f.op.run_in_steps(f.arguments, given, _Stepper(f, self._watcher, trail, self._graphs))
        for hook in hooks:
            hook.forward_postprocess(f, arrays)
        return made

    def array(self, x: MarkedArray) -> Any:
        """The array of a value."""
        return x.array

    def slice(self, x: MarkedArray, number: int) -> MarkedArray:
        """One slice along the first axis."""
        part = np.asarray(x.array)[number]
        return MarkedArray(part, None if x.mark is None else self._watcher.of_part(x.mark, part))

    def stack(self, xs: Sequence[MarkedArray], spec: Spec) -> MarkedArray:
        """Values stacked along a new first axis, with their first mark."""
        if not xs:
            return MarkedArray(np.zeros(spec.shape, spec.dtype), None)
        marks = [x.mark for x in xs if x.mark is not None]
        return MarkedArray(np.stack([np.asarray(x.array) for x in xs]), marks[0] if marks else None)


def run_in_steps(f: Function, inputs: Sequence[MarkedArray], watcher: Watcher) -> list[MarkedArray]:
    """The outputs of a function with bodies, computed step by step.

    Args:
        f: The function.
        inputs: The inputs of the function.
        watcher: Watches each function.
    """
    assert isinstance(f.op, ControlOp)
    made = f.op.run_in_steps(f.arguments, inputs, _Stepper(f, watcher, (), {}))
    device = None if f.context is None else f.context.device
    with x64_if(any([spec.needs_x64 for spec in f.specs])):
        return [MarkedArray(jax.device_put(y.array, device), y.mark) for y in made]


def location_text(f: Function) -> str:
    """Where the user wrote a function of a body, as text."""
    place = getattr(f, "location", None)
    return "written at an unknown place" if place is None else f"written at {place}"
