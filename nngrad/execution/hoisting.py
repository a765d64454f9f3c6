"""Hoist literals: programs that differ in numbers alone share an executable, which takes the numbers as an input.

A number is part of a graph's structure: zeros and ones vanish, and powers are multiplied out. An executable need not
know most of them, so that a number which changes, as lam in `lam * penalty` where lam is annealed, compiles nothing:
0, 1, -1, and those that an op computes with in a way of its own, stay in the program; all others are inputs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from ctypes import c_float
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jax import lax

from ..graph import Op, Spec
from ..graph.block import Block, Step
from ..graph.spec import spec_of
from .calls import calls_of
from .cpu.repeated import Repeated
from .program import HoistedLiteral, Program, in_one

Numbers = tuple[float, ...]


_literal_at = functools.cache(HoistedLiteral)  # those that are the same object are soon found to be equal

_SPECIAL = (0, 1, -1)
"""Numbers with which there is less to compute."""


def hoist_from(block: Block) -> tuple[Block, Numbers]:
    """The block with its numbers hoisted, and the numbers. Equal numbers have one place, so that what does the same
    still does. Code of the user's takes no numbers beside it; and where integers are computed with, what they become
    depends on the number."""
    if not any([op.numbers for op, _, _ in block.steps]) or block.opaque:
        return block, ()
    calls, specs = calls_of(block)
    found: dict[str, float] = {}
    places: dict[str, int] = {}

    def hoist(op: Op, number: Any) -> Any:
        if isinstance(number, tuple):
            return tuple([hoist(op, each) for each in number])
        if number in _SPECIAL or (op.own_way is not None and op.own_way(number)):
            return number
        written = float.hex(float(number))
        found[written] = float(number)
        return _literal_at(places.setdefault(written, len(places)))

    steps: list[Step] = []
    for op, arguments, ins, outs in calls:
        if op.numbers and all([specs[i].differentiable for i in (*ins, *outs)]):
            named = zip(op.argument_names, arguments, strict=True)
            arguments = tuple([hoist(op, each) if name in op.numbers else each for name, each in named])
        steps.append((op, arguments, ins))
    return block.with_steps(tuple(steps)) if found else block, tuple(found.values())


def hoisted_in(block: Block) -> int:
    """How many numbers of a block are inputs of its executable."""
    given = [argument for _, arguments, _ in block.steps for argument in arguments]
    flat = [each for argument in given for each in (argument if argument.__class__ is tuple else (argument,))]
    return len({each.place for each in flat if each.__class__ is HoistedLiteral})


class Hoisted(NamedTuple):
    """A program with its numbers hoisted, and these."""

    program: Program
    numbers: np.ndarray[Any, Any] | None
    """As an executable takes them, before the arrays of the leaves; None where there are none."""

    @property
    def takes(self) -> tuple[Spec, ...]:
        """Shapes and dtypes of what an executable takes."""
        if self.numbers is None:
            return self.program.block.inputs
        return spec_of(self.numbers.shape, self.numbers.dtype), *self.program.block.inputs


def hoisted(program: Program) -> Hoisted:
    """What all programs have in common that differ from this one in numbers alone, and its own numbers."""
    block, numbers = hoist_from(program.block)
    return Hoisted(program._replace(block=block), as_array(numbers, block.needs_x64))


def as_array(numbers: Numbers, needs_x64: bool) -> np.ndarray[Any, Any] | None:
    """Numbers as an executable takes them; None where there are none."""
    if not numbers:
        return None
    if needs_x64:
        return np.array(numbers, np.float64)
    # C casts too large numbers to infinity without NumPy's warning, as where they are a part of the program.
    return np.array([c_float(number).value for number in numbers], np.float32)


def with_literals(program: Program, numbers: Sequence[Any]) -> Program:
    """A program with numbers, or what stands for them where JAX traces it, in the place of its hoisted literals."""
    return program._replace(block=program.block.with_steps(literals_replaced(program.block.steps, numbers.__getitem__)))


def literals_replaced(steps: Iterable[Step], by: Callable[[int], Any]) -> tuple[Step, ...]:
    """Steps with what `by` says for a place instead of each hoisted literal."""

    def in_place(argument: Any) -> Any:
        if argument.__class__ is HoistedLiteral:
            return by(argument.place)
        if argument.__class__ is tuple:
            return tuple(map(in_place, argument))
        if argument.__class__ is Repeated:
            return replace(argument, steps=literals_replaced(argument.steps, by))
        return argument

    return tuple([(op, in_place(arguments), ins) for op, arguments, ins in steps])


def renumbered(block: Block) -> tuple[Block, tuple[int, ...]]:
    """A part of a block with its own hoisted literals numbered from 0 on, and their places in the whole block."""
    places: dict[int, int] = {}
    steps = literals_replaced(block.steps, lambda place: _literal_at(places.setdefault(place, len(places))))
    return block.with_steps(steps) if places else block, tuple(places)


def taking_literals(program: Program) -> Callable[..., tuple[Any, ...]]:
    """A program as a function of an array of its hoisted literals and the arrays of the leaves."""

    def run(numbers: Any, *arrays: Any) -> tuple[Any, ...]:
        each = [lax.index_in_dim(numbers, i, keepdims=False) for i in range(numbers.shape[0])]
        return in_one(with_literals(program, each))(*arrays)

    return run
