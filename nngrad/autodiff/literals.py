"""Numbers in a graph as inputs of the executable that a backward runs.

What is emitted for a graph depends on its numbers: zeros and ones vanish, others are collected. So a graph that comes
again with another number, as `loss + lam * penalty` does where lam is annealed, would be differentiated anew each time.
Nobody sees the graph of a backward's gradients, so leaves stand for numbers there, which are right for every number by
the rules alone. Whole numbers stay, most of which come of powers and rules and are collected, and so do numbers that
are not finite and those of integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..execution.calls import calls_of
from ..execution.hoisting import hoist_from
from ..execution.program import HoistedLiteral, Program
from ..graph import Function, NdArray, Variable, contained, create, functions_of, set_switches
from ..graph.closing import Closing
from ..graph.spec import DType, spec_of
from ..graph.variable import leaf_of
from ..rewrite.builder import plain_builder

Places = tuple[tuple[int, DType], ...]
"""Hoisted literals by their places, each with the dtype of what is computed with it."""


class WithoutLiterals(NamedTuple):
    """A program, and the numbers in it that are inputs."""

    program: Program
    """The same with those numbers hoisted: equal for all that differ in them alone."""
    values: dict[int, float]
    """The numbers, by their places."""

    def arrays(self, places: Places) -> tuple[np.ndarray[Any, Any], ...]:
        """The numbers as arrays."""
        with np.errstate(over="ignore"):
            return tuple([np.asarray(self.values[place]).astype(dtype) for place, dtype in places])


def without_literals(program: Program) -> WithoutLiterals | None:
    """Returns a program without its numbers, and these; None where it has none that leaves could stand for."""
    block, numbers = hoist_from(program.block)
    if not numbers:
        return None
    calls, specs = calls_of(program.block)
    values: dict[int, float] = {}
    steps = list(program.block.steps)
    for i, ((op, arguments, ins), call) in enumerate(zip(block.steps, calls, strict=True)):
        spec = specs[call.outs[0]]
        if op.from_variables is not None and len(call.outs) == 1 and all([specs[j] is spec for j in call.ins]):
            pairs = zip(arguments, steps[i][1], strict=True)
            steps[i] = op, tuple([_hoisted(*pair, values) for pair in pairs]), ins
    if not values:
        return None
    return WithoutLiterals(program._replace(block=program.block.with_steps(tuple(steps))), values)


def _hoisted(argument: Any, own: Any, values: dict[int, float]) -> Any:
    """An argument with those numbers hoisted that leaves stand for, which are entered in `values`."""
    if isinstance(argument, tuple):
        return tuple([_hoisted(*pair, values) for pair in zip(argument, own, strict=True)])
    if argument.__class__ is not HoistedLiteral or not math.isfinite(own) or float(own).is_integer():
        return own
    values[argument.place] = float(own)
    return argument


class WithLeaves(NamedTuple):
    """A graph in which leaves stand for numbers."""

    variables: list[Variable]
    """What takes the place of those that were given."""
    leaves: dict[tuple[int, DType], Variable]
    """The leaves, by their places and dtypes."""


@contained
def with_leaves(
    outputs: Sequence[Variable], others: Sequence[Variable], program: Program, found: WithoutLiterals
) -> WithLeaves | None:
    """Returns a graph that computes the same, with leaves in place of numbers; None where the program is not just the
    graph.

    Args:
        outputs: What is computed.
        others: Variables above them, which are computed as well.
        program: The program that does so.
        found: The numbers in it.
    """
    builder = plain_builder()
    set_switches(auto_forward=False, no_grad=False, mark=None, builder=builder)
    functions = functions_of(outputs)
    closing = Closing()
    closing.write(functions)
    if tuple(closing.steps) != program.block.steps:  # effects have added to it
        return None
    instead: dict[tuple[Function, int], Variable] = {}
    leaves: dict[tuple[int, DType], Variable] = {}

    def leaf_for(argument: Any, dtype: DType) -> Any:
        if isinstance(argument, tuple):
            return tuple([leaf_for(each, dtype) for each in argument])
        if argument.__class__ is not HoistedLiteral:
            return argument
        key = argument.place, dtype
        if key not in leaves:
            leaves[key] = leaf_of(NdArray.of_spec(spec_of((), dtype)))
        return leaves[key]

    for f, (op, arguments, _) in zip(functions, found.program.block.steps, strict=True):
        inputs = tuple([x if x.parent is None else instead.get((x.parent, x.index), x) for x in f.inputs])
        if arguments != f.arguments:
            assert op.from_variables is not None
            builder.call, builder.order = f.call, f.order
            numbers = leaf_for(arguments, f.specs[0].dtype)
            results: tuple[Variable, ...] = (op.from_variables(f, inputs, numbers),)
        elif any([x is not y for x, y in zip(inputs, f.inputs, strict=True)]):
            made = create(op, inputs, f.arguments, f.effects, f.call, f.order)
            results = made if op.multiple_results else (made,)
        else:
            continue
        for y, z in zip(f.outputs, results, strict=True):
            z._need_grad = y._need_grad
            instead[f, y.index] = z
    variables = [instead.get((y.parent, y.index), y) if y.parent is not None else y for y in (*outputs, *others)]
    return WithLeaves(variables, leaves)
