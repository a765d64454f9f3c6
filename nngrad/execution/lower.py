"""A graph as a program, and a program as a pure JAX function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax

from ..graph import Function, Op, Spec, Variable, path_between
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
    """The leaves, in the program's order."""
    functions: list[Function]
    """The functions, in an order in which they can run."""
    updated: list[Variable]
    """The leaves whose new values are the program's last results."""


class _Steps:
    """Collects the steps of a program, and numbers its values."""

    def __init__(self, leaves: list[Variable]) -> None:
        self.leaves = leaves
        self.steps: list[Step] = []
        self._numbers = {id(x): i for i, x in enumerate(leaves)}
        self._first: dict[Function, int] = {}
        self._count = len(leaves)

    def number(self, x: Variable) -> int:
        """The number of a Variable."""
        known = self._numbers.get(id(x))
        if known is not None:
            return known
        assert x.parent is not None
        return self._first[x.parent] + x.index

    def add(self, f: Function) -> None:
        """Append the step of a function."""
        self._first[f] = self._append(f, tuple([self.number(x) for x in f.inputs]))

    def _append(self, f: Function, ins: tuple[int, ...]) -> int:
        self.steps.append((f.op, f.arguments, ins))
        first = self._count
        self._count += len(f.specs)
        return first

    def again(self, value: Variable, leaf: Variable, number: int) -> int:
        """Compute `value` a second time with `number` in place of `leaf`, and return its number."""
        path, _, _ = path_between([value], [leaf], stops=False)
        others: dict[tuple[Function | None, int], int] = {}
        for f in path:
            ins = tuple([
                number if x is leaf else others.get((x.parent, x.index), self.number(x)) for x in f.inputs
            ])
            first = self._append(f, ins)
            others |= {(f, i): first + i for i in range(len(f.specs))}
        return others.get((value.parent, value.index), self.number(value))


def linearize(
    outputs: Sequence[Variable],
    first: Iterable[Variable] = (),
    device: jax.Device | None = None,
    effects: bool = True,
) -> Linearized:
    """The program that computes `outputs`, and after them the new values of the leaves it updates.

    A leaf that several functions update is updated by each in turn: what a later one computes from the
    leaf is computed from the earlier one's result.

    Args:
        outputs: What it computes.
        first: Variables that come first among the leaves; functions above them are left out.
        device: Where it runs.
        effects: Whether it computes the leaves' new values.
    """
    leaves = list(first)
    known = {id(x) for x in leaves}
    functions = _functions_below(outputs, known)
    for x in (*outputs, *(x for f in functions for x in f.inputs)):
        if x.parent is None and id(x) not in known:
            known.add(id(x))
            leaves.append(x)
    steps = _Steps(leaves)
    for f in functions:
        steps.add(f)
    updated: list[Variable] = []
    newest: dict[int, int] = {}
    if effects:
        for f in functions:
            for leaf, index in f.effects:
                value, before = f.inputs[index], newest.get(id(leaf))
                if before is None:
                    updated.append(leaf)
                newest[id(leaf)] = steps.number(value) if before is None else steps.again(value, leaf, before)
    numbers = [*[steps.number(y) for y in outputs], *newest.values()]
    program = Program(tuple([x.spec for x in leaves]), tuple(steps.steps), tuple(numbers), device)
    return Linearized(program, leaves, functions, updated)


def _functions_below(outputs: Sequence[Variable], cut: set[int]) -> list[Function]:
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

    def run(*arrays: Any) -> tuple[Any, ...]:
        values = list(arrays)
        truths: dict[int, Callable[[], Any]] = {}
        for op, arguments, ins in program.steps:
            inputs = [values[i] for i in ins]
            if op.truth is not None:
                # XLA does not see through a number that is made of a bool and compared with 0.
                truths[len(values)] = functools.partial(op.bind(arguments, op.truth), *inputs)
            elif op.selects and ins[0] in truths:
                inputs[0] = truths[ins[0]]()
            out = op.bind(arguments)(*inputs)
            if op.several:
                values.extend(out)
            else:
                values.append(out)
        return tuple([values[i] for i in program.outputs])

    return run
