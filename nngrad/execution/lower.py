"""A graph as a program, and a program as a pure JAX function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax

from ..graph import Function, Op, Spec, Variable
from ..graph.spec import is_wide

Step = tuple[Op, tuple[Any, ...], tuple[int, ...]]


class Program(NamedTuple):
    """The structure of a graph, without the graph: equal structures are equal programs.

    Values are numbered: first the leaves, then the outputs of the steps, one after the other.
    """

    leaves: tuple[Spec, ...]
    """Shape and dtype of each leaf."""
    steps: tuple[Step, ...]
    """Op, static arguments, and the numbers of the inputs, in an order in which they can run."""
    outputs: tuple[int, ...]
    """Numbers of the results."""
    device: jax.Device | None
    """Where it runs; None leaves it to JAX."""

    @property
    def wide(self) -> bool:
        """Whether 64-bit values occur in it, by way of a leaf or of an argument."""
        return any([s.wide for s in self.leaves]) or any([is_wide(arguments) for _, arguments, _ in self.steps])


class Linearized(NamedTuple):
    """A graph's program, with what ties it to the graph."""

    program: Program
    leaves: list[Variable]
    functions: list[Function]
    numbers: dict[int, int]
    """The number of each Variable, by its id."""


def linearize(
    outputs: Sequence[Variable],
    first: Iterable[Variable] = (),
    device: jax.Device | None = None,
    effects: bool = True,
) -> tuple[Linearized, list[Variable]]:
    """The program that computes `outputs`, and after them the new values of the leaves it updates.

    Args:
        outputs: What it computes.
        first: Variables that come first among the leaves; functions above them are left out.
        device: Where it runs.
        effects: Whether it computes the leaves' new values.

    Returns:
        The linearized graph, and the leaves that are updated.
    """
    leaves = list(first)
    numbers = {id(x): i for i, x in enumerate(leaves)}
    functions = _functions_below(outputs, numbers)
    for x in (*outputs, *(x for f in functions for x in f.inputs)):
        if x.parent is None and id(x) not in numbers:
            numbers[id(x)] = len(leaves)
            leaves.append(x)
    steps, count = [], len(leaves)
    first_output: dict[Function, int] = {}
    for f in functions:
        ins = tuple([
            numbers[id(x)] if x.parent is None or id(x) in numbers else first_output[x.parent] + x.index
            for x in f.inputs
        ])
        steps.append((f.op, f.arguments, ins))
        first_output[f] = count
        count += len(f.specs)

    def number(y: Variable) -> int:
        known = numbers.get(id(y))
        return first_output[y.parent] + y.index if known is None and y.parent is not None else numbers[id(y)]

    results = [number(y) for y in outputs]
    updated = []
    if effects:
        for f in functions:
            for leaf, index in f.effects:
                updated.append(leaf)
                results.append(first_output[f] + index)
    specs = tuple([x.spec for x in leaves])
    program = Program(specs, tuple(steps), tuple(results), device)
    return Linearized(program, leaves, functions, numbers), updated


def _functions_below(outputs: Sequence[Variable], cut: dict[int, int]) -> list[Function]:
    """The functions that compute `outputs` from leaves and the Variables in `cut`, lowest rank first."""
    found: dict[Function, None] = {}
    stack = []
    for y in outputs:
        if y.parent is not None and id(y) not in cut and y.parent not in found:
            found[y.parent] = None
            stack.append(y.parent)
    while stack:
        for x in stack.pop().inputs:
            f = x.parent
            if f is not None and f not in found and id(x) not in cut:
                found[f] = None
                stack.append(f)
    return sorted(found, key=lambda f: f.rank)


def lower(program: Program) -> Callable[..., tuple[Any, ...]]:
    """The program as a pure function: arrays of the leaves in, arrays of the results out."""
    steps = [(op.bind(arguments), op.several, ins) for op, arguments, ins in program.steps]

    def run(*arrays: Any) -> tuple[Any, ...]:
        values = list(arrays)
        for forward, several, ins in steps:
            out = forward(*[values[i] for i in ins])
            if several:
                values.extend(out)
            else:
                values.append(out)
        return tuple([values[i] for i in program.outputs])

    return run
