"""Programs for any batch size, fitted to the graphs that a function builds for three sizes.

A graph has fixed shapes, and does not record which of its numbers were computed from a shape. Three graphs of the same
function show it: if all have the same structure, static arguments that differ depend on the size. Two graphs determine
the formula, and the third checks it. Whatever no formula fits is refused, never guessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...extend import Block, Op, Program, Spec, Variable, linearize

SIZES = (1009, 1013, 1019)
"""The sizes that graphs are built for: primes, so that no other size in a graph is mistaken for them."""
_CLOSE = 1e-14
"""The relative tolerance for floats computed from a size, which rounding may change."""


class Scaled(NamedTuple):
    """A number that depends on the size n: `factor * n**power * (n - 1)**less * (n + 1)**more`."""

    factor: float
    power: float
    less: float = 0
    more: float = 0

    def at(self, size: Any) -> Any:
        """The number at a size."""
        top, bottom = self.factor, 1.0
        for base, power in ((size, self.power), (size - 1, self.less), (size + 1, self.more)):
            if power > 0:
                top = top * base**power
            elif power < 0:
                bottom = bottom * base**-power
        return top / bottom

    def as_array(self, size: Any, dtype: Any) -> jax.Array:
        """The number as an array, at a symbolic size."""
        return jnp.asarray(self.at(jnp.asarray(size, dtype)), dtype)


_POWERS = (0, -1, 1, -0.5, 0.5, -2, 2, -1.5, 1.5, -3, 3, -4, 4)
_FORMS = [Scaled(1.0, power, less) for less in _POWERS for power in _POWERS] + [
    Scaled(1.0, power, more=more) for more in (-1, 1, -2, 2) for power in _POWERS
]


class Differs(Exception):
    """Something depends on the size in an unsupported way; the message says what."""


class NotForAnySize(ValueError):
    """A function of the graph cannot be traced with a symbolic size."""


class AnySize(NamedTuple):
    """A closed graph for any size, and the Variables that it reads."""

    program: Program
    """With symbolic sizes in its static arguments; numbers that depend on the size are `Scaled`."""
    leaves: list[Variable]
    """The leaves of the first of the three graphs."""
    needs_x64: bool
    """True if it uses 64-bit values."""

    def run(self, arrays: Sequence[Any], size: Any) -> list[Any]:
        """The results, traced with a symbolic size.

        Raises:
            NotForAnySize: A function cannot be traced with a symbolic size; the message names the function.
        """
        dtype = jnp.float64 if self.needs_x64 else jnp.float32

        def filled(argument: Any) -> Any:
            if isinstance(argument, Scaled):
                return argument.as_array(size, dtype)
            return tuple(map(filled, argument)) if type(argument) is tuple else argument

        at: list[Op] = []

        def watched() -> Any:
            for op, arguments, ins in self.program.block.steps:
                at[:] = [op]
                yield op, filled(arguments), ins

        try:
            values = self.program.block.run(arrays, watched())
        except Exception as error:
            raise NotForAnySize(f"cannot export {at[0].name} for any batch size: {str(error).splitlines()[0]}\n"
                                "Export it with a fixed size, write that part differently, or give the size with "
                                "constraints, by jax.export.symbolic_shape") from error
        return self.program.block.picked(arrays, values)


def for_any_size(build: Callable[[int], tuple[list[Variable], list[Variable]]], size: Any) -> AnySize:
    """A program for any batch size.

    Args:
        build: Builds the graph for a size; returns inputs and outputs.
        size: The symbolic size, made by `jax.export.symbolic_shape`.

    Raises:
        ValueError: The structure of the graph, or something in it, depends on the size in an unsupported way; the
            message names the function or the leaf.
    """
    graphs = [build(n) for n in SIZES]
    linear = [linearize(outputs, first=inputs, effects=False) for inputs, outputs in graphs]
    blocks = [graph.program.block for graph in linear]
    count = len(graphs[0][0])
    try:
        _check_structure(blocks)
    except Differs as differs:
        raise ValueError(f"the structure of the graph depends on the batch size: {differs}; export it with a fixed "
                         "size") from None
    for leaves in zip(*[graph.leaves[count:] for graph in linear], strict=True):
        _check_leaf(leaves)
    fitting = _Fitting(size)
    steps = []
    for step in zip(*[block.steps for block in blocks], strict=True):
        op, _, ins = step[0]
        steps.append((op, fitting.arguments(op, [arguments for _, arguments, _ in step],
                                            all([blocks[0].spec(i).differentiable for i in ins])), ins))
    specs = tuple([fitting.spec(versions) for versions in zip(*[block.inputs for block in blocks], strict=True)])
    block = Block(specs, tuple(steps), (), blocks[0].outputs)
    return AnySize(linear[0].program._replace(block=block), linear[0].leaves, blocks[0].needs_x64)


def _check_structure(blocks: Sequence[Block]) -> None:
    first = blocks[0]
    for block in blocks[1:]:
        for (op, _, ins), (other, _, others) in zip(first.steps, block.steps, strict=False):
            if op is not other or ins != others:
                raise Differs(f"where size {SIZES[0]} has {op.name}, another has {other.name}")
        if len(first.steps) != len(block.steps) or first.outputs != block.outputs:
            raise Differs(f"it has {len(first.steps)} functions for one size and {len(block.steps)} for another")
        if first.orders != block.orders or first.stop_gradients != block.stop_gradients:
            raise Differs("it differentiates other values for another size")


def _check_leaf(leaves: Sequence[Variable]) -> None:
    """Raise unless a leaf is a random key or has the same value at every size."""
    first = leaves[0]
    if all([x.cell is first.cell for x in leaves]):
        return
    if all([x.key_source is not None and x.spec is first.spec for x in leaves]):
        return
    drawn = any([x.key_source is not None for x in leaves])
    if drawn or any([x.spec is not first.spec for x in leaves]) or len({x.d.tobytes() for x in leaves}) > 1:
        raise ValueError(f"the leaf {first!r:.80} has another array for each batch size; make it once, outside the "
                         "function, or compute it from the inputs with F")


class _Fitting:
    """Determines which parts of a graph depend on the size, and how.

    Args:
        size: The symbolic size.
    """

    def __init__(self, size: Any) -> None:
        self._size = size

    def arguments(self, op: Op, versions: Sequence[tuple[Any, ...]], floats: bool) -> tuple[Any, ...]:
        """The static arguments of an op for any size.

        Args:
            op: The op.
            versions: Its arguments at each of `SIZES`.
            floats: Whether all its inputs are floats.
        """
        fitted = []
        for i, values in enumerate(zip(*versions, strict=True)):
            name = op.argument_names[i]
            try:
                fitted.append(self.value(values, name in op.numbers and floats))
            except Differs as differs:
                raise ValueError(f"{op.name}: the argument {name} depends on the batch size: {differs}; export the "
                                 "graph with a fixed size, or write that part differently") from None
        return tuple(fitted)

    def value(self, values: Sequence[Any], free: bool) -> Any:
        """The value for any size, fitted to the values at three.

        Args:
            values: The value at each of `SIZES`.
            free: Whether a number may be computed when the program runs.
        """
        first = values[0]
        kind = type(first)
        are_numbers = all([isinstance(v, int | float | Fraction) for v in values])
        if any([type(v) is not kind for v in values]) and not are_numbers:
            raise Differs(f"it is {values[0]!r:.40} for one size and {values[1]!r:.40} for another")
        if kind is Block:
            return self._body(values)
        if all([v == first for v in values]) or (kind is float and all([math.isnan(v) for v in values])):
            return first
        if kind is tuple and len({len(v) for v in values}) == 1:
            return tuple([self.value(parts, free) for parts in zip(*values, strict=True)])
        if kind is Spec:
            return self.spec(values)
        if all([type(v) is int for v in values]):
            return self._whole(values)
        if free and are_numbers:
            return form_of_numbers(values)
        raise Differs(f"it is {values[0]!r:.40} for {SIZES[0]} and {values[1]!r:.40} for {SIZES[1]}")

    def spec(self, specs: Sequence[Spec]) -> Spec:
        """Shape and dtype for any size."""
        if all([s is specs[0] for s in specs]):
            return specs[0]
        if len({(s.dtype, s.ndim) for s in specs}) > 1:
            raise Differs(f"a value is {specs[0]} for {SIZES[0]} and {specs[1]} for {SIZES[1]}")
        return Spec(tuple([self._whole(axis) for axis in zip(*[s.shape for s in specs], strict=True)]), specs[0].dtype)

    def _whole(self, sizes: Sequence[int]) -> Any:
        """An integer of the form `a * n + c`."""
        if sizes[0] == sizes[1] == sizes[2]:
            return sizes[0]
        a, remainder = divmod(sizes[1] - sizes[0], SIZES[1] - SIZES[0])
        c = sizes[0] - a * SIZES[0]
        if remainder or sizes[2] != a * SIZES[2] + c:
            raise Differs(f"it is {sizes[0]} for {SIZES[0]} and {sizes[1]} for {SIZES[1]}")
        return a * self._size + c

    def _body(self, bodies: Sequence[Block]) -> Block:
        first = bodies[0]
        if all([body == first for body in bodies]):
            return first
        steps: list[Any] = []
        try:
            _check_structure(bodies)
            for step in zip(*[body.steps for body in bodies], strict=True):
                op, _, ins = step[0]
                # A body cannot compute static numbers when it runs.
                steps.append((op, self.arguments(op, [arguments for _, arguments, _ in step], False), ins))
        except (Differs, ValueError) as error:
            raise Differs(f"in its body, {error}") from None
        results = [
            tuple([self.spec(specs) for specs in zip(*of_step, strict=True)])
            for of_step in zip(*[body.results for body in bodies], strict=True)
        ]
        inputs = tuple([self.spec(specs) for specs in zip(*[body.inputs for body in bodies], strict=True)])
        stop = first.stop_gradients
        return Block(inputs, tuple(steps), first.orders, first.outputs, stop, first.places, tuple(results))


def form_of_numbers(numbers: Sequence[Any]) -> Scaled:
    """The formula that fits the numbers at each of `SIZES`."""
    for form in _FORMS:
        factors = [float(v) / form.at(float(n)) for v, n in zip(numbers, SIZES, strict=True)]
        if all([math.isclose(f, factors[0], rel_tol=_CLOSE) for f in factors]):
            whole = round(factors[0])
            near = math.isclose(whole, factors[0], rel_tol=_CLOSE)
            return form._replace(factor=float(whole) if near else factors[0])
    raise Differs(f"it is {float(numbers[0]):g} for {SIZES[0]} and {float(numbers[1]):g} for {SIZES[1]}")
