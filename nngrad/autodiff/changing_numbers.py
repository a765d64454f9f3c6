"""Numbers that change from one graph to the next, as inputs of the executable that a backward runs.

What is emitted for a graph depends on its numbers: zeros and ones vanish, others are collected. So a graph that comes
again with another number, as `loss + lam * penalty` does where lam is annealed, would be differentiated anew each time.
Nobody sees the graph of a backward's gradients; so from the second number on leaves stand for the numbers that have
changed, which are right for every number by the rules alone. Numbers that never change stay where they are, and so do
0, 1, -1 and what is not finite wherever they turn up: each of them has a program of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..execution.compiled import BoundedCache, executables
from ..execution.hoisting import HoistedLiteral, Numbers, hoist_from
from ..execution.program import Program
from ..graph import Function, NdArray, Variable, contained, create, functions_of, switch
from ..graph.closing import Closing
from ..graph.spec import DType, spec_of
from ..graph.variable import leaf_of
from ..rewrite.builder import plain_builder

_SPECIAL = (0, 1, -1)


class _Met:
    """What is known of programs that differ in numbers alone."""

    __slots__ = ("changed", "first")

    def __init__(self, first: Numbers) -> None:
        self.first = first
        """The numbers that such a program had first."""
        self.changed: frozenset[int] = frozenset()
        """Which of them were others later."""


_met = executables.registered(BoundedCache(512))


class Changing(NamedTuple):
    """A program of which numbers have changed."""

    program: Program
    """The same with those numbers hoisted: equal for all that differ in them alone."""
    values: dict[int, float]
    """The numbers, by their places."""

    def arrays(self, dtypes: Mapping[int, DType]) -> tuple[np.ndarray[Any, Any], ...]:
        """The numbers as arrays, in the dtypes of what is computed with them."""
        with np.errstate(over="ignore"):
            return tuple([np.asarray(self.values[place]).astype(dtype) for place, dtype in dtypes.items()])


def changing(program: Program) -> Changing | None:
    """Returns which numbers of a program have changed since one like it came first; None where none have, where one of
    them matters for what is emitted, or where it is not known how a leaf stands for it."""
    general, numbers = hoist_from(program.block, apart=True)
    if not numbers:
        return None
    table = _met.part([op for op, _, _ in program.block.steps])
    met: _Met = table.get(general, lambda: _Met(numbers))
    met.changed |= {i for i, pair in enumerate(zip(numbers, met.first, strict=True)) if len({*map(repr, pair)}) > 1}
    if not met.changed:
        return None
    values: dict[int, float] = {}
    steps = list(program.block.steps)
    for i, (op, arguments, ins) in enumerate(general.steps):
        own = steps[i][1]
        filled = tuple([_kept(*pair, met.changed, values) for pair in zip(arguments, own, strict=True)])
        if filled != own:
            if op.from_variables is None:
                return None
            steps[i] = op, filled, ins
    if any([number in _SPECIAL or not math.isfinite(number) for number in values.values()]):
        return None
    return Changing(program._replace(block=program.block.with_steps(tuple(steps))), values)


def _kept(argument: Any, own: Any, changed: frozenset[int], values: dict[int, float]) -> Any:
    """An argument with those numbers hoisted alone that have changed; their numbers are entered in `values`."""
    if isinstance(argument, tuple):
        return tuple([_kept(*pair, changed, values) for pair in zip(argument, own, strict=True)])
    if argument.__class__ is not HoistedLiteral or argument.place not in changed:
        return own
    values[argument.place] = float(own)
    return argument


class WithLeaves(NamedTuple):
    """A graph in which leaves stand for numbers."""

    variables: list[Variable]
    """What takes the place of those that were given."""
    leaves: dict[int, Variable]
    """The leaves, by their places."""


@contained
def with_leaves(
    outputs: Sequence[Variable], others: Sequence[Variable], program: Program, found: Changing
) -> WithLeaves | None:
    """Returns a graph that computes the same, with leaves in place of the numbers that change; None where integers are
    computed with, whose dtype depends on the number, or where the program is not just the graph.

    Args:
        outputs: What is computed.
        others: Variables above them, which are computed as well.
        program: The program that does so.
        found: The numbers in it.
    """
    builder = plain_builder()
    switch(auto_forward=False, no_grad=False, mark=None, builder=builder)
    functions = functions_of(outputs)
    closing = Closing()
    closing.write(functions)
    if tuple(closing.steps) != program.block.steps:  # effects have added to it
        return None
    instead: dict[tuple[Function, int], Variable] = {}
    leaves: dict[int, Variable] = {}

    def leaf_for(argument: Any, dtype: DType) -> Any:
        if isinstance(argument, tuple):
            return tuple([leaf_for(each, dtype) for each in argument])
        if argument.__class__ is not HoistedLiteral:
            return argument
        leaves[argument.place] = leaf = leaf_of(NdArray.of_spec(spec_of((), dtype)))
        return leaf

    for f, (op, arguments, _) in zip(functions, found.program.block.steps, strict=True):
        inputs = tuple([x if x.parent is None else instead.get((x.parent, x.index), x) for x in f.inputs])
        if arguments != f.arguments:
            (spec,) = f.specs
            if op.from_variables is None or not spec.differentiable or not all([x.spec is spec for x in inputs]):
                return None
            builder.call, builder.order = f.call, f.order
            results: tuple[Variable, ...] = (op.from_variables(f, inputs, leaf_for(arguments, spec.dtype)),)
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
