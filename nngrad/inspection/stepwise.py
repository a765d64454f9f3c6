"""Run loops and branches step by step: each function of a body by itself, with concrete arrays, under a checker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from ..extend import Block, ControlOp, Function, Spec, Switched, Variable, contained, results_of, x64_if

if TYPE_CHECKING:
    from .nan import Checker


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
    """An array with a checker's mark."""

    array: Any
    mark: Any


class _BodyGraph(NamedTuple):
    """A body as functions of a graph, to show to checkers."""

    functions: list[Function]
    held: list[Variable]
    """The Variables, kept alive by this object."""


@contained
def _graph_of(body: Block, names: Sequence[str], context: Any) -> _BodyGraph:
    Switched(context=context).from_now_on(alone=True)
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
        checker: Marks what each function in them computes.
        trail: Where the function itself runs.
        graphs: Bodies that have run, by id, with their graphs.
    """

    def __init__(
        self, owner: Function, checker: Checker, trail: Trail, graphs: dict[int, tuple[Block, _BodyGraph]]
    ) -> None:
        self._owner, self._checker, self._trail, self._graphs = owner, checker, trail, graphs

    def run(
        self, role: str, body: Block, inputs: Sequence[MarkedArray], number: int | None = None
    ) -> list[MarkedArray]:
        """The values of a body."""
        known = self._graphs.get(id(body))
        if known is None:
            f = self._owner
            assert isinstance(f.op, ControlOp)
            (names,) = [within.inputs for within in f.op.within(f.arguments, len(f.inputs)) if within.role == role]
            known = self._graphs[id(body)] = body, _graph_of(body, names, f.context)
        trail = (*self._trail, Step(self._owner, role, number))
        values: list[MarkedArray] = []
        for f, (_, _, ins) in zip(known[1].functions, body.steps, strict=True):
            operands = body.picked(inputs, values, ins)
            if isinstance(f.op, ControlOp):  # recursion as deep as the user's nesting of loops
                values += f.op.run_in_steps(f.arguments, operands, _Stepper(f, self._checker, trail, self._graphs))
                continue
            results = results_of(f, [x.array for x in operands])
            values += map(MarkedArray, results, self._checker.marks(f, operands, results, trail))
        return values

    def array(self, x: MarkedArray) -> Any:
        """The array of a value."""
        return x.array

    def slice(self, x: MarkedArray, number: int) -> MarkedArray:
        """One slice along the first axis."""
        part = np.asarray(x.array)[number]
        return MarkedArray(part, None if x.mark is None else self._checker.of_part(x.mark, part))

    def stack(self, xs: Sequence[MarkedArray], spec: Spec) -> MarkedArray:
        """Values stacked along a new first axis, with their first mark."""
        if not xs:
            return MarkedArray(np.zeros(spec.shape, spec.dtype), None)
        marks = [x.mark for x in xs if x.mark is not None]
        return MarkedArray(np.stack([np.asarray(x.array) for x in xs]), marks[0] if marks else None)


def run_in_steps(f: Function, inputs: Sequence[MarkedArray], checker: Checker) -> list[MarkedArray]:
    """The outputs of a function with bodies, computed step by step.

    Args:
        f: The function.
        inputs: The inputs of the function.
        checker: Marks what each function computes.
    """
    assert isinstance(f.op, ControlOp)
    outputs = f.op.run_in_steps(f.arguments, inputs, _Stepper(f, checker, (), {}))
    device = None if f.context is None else f.context.device
    with x64_if(any([spec.needs_x64 for spec in f.specs])):
        return [MarkedArray(jax.device_put(y.array, device), y.mark) for y in outputs]
