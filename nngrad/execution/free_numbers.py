"""Programs that differ in numbers alone share an executable, which takes the numbers as an input.

A number is part of a graph's structure: zeros and ones vanish, and powers are multiplied out. An executable need not
know most of them, so that a number which changes, as lam in `lam * penalty` where lam is annealed, compiles nothing:
0, 1, -1, and those that an op computes with in a way of its own, stay in the program; all others are inputs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
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
from .program import Program, in_one

Numbers = tuple[float, ...]


class Slot(float):
    """A number that is an input of a program, which equals those of the same place among them. What it is as a float
    means nothing."""

    __slots__ = ("place",)

    place: int

    def __new__(cls, place: int) -> Slot:
        slot = super().__new__(cls, 0.5)
        slot.place = place
        return slot

    def __eq__(self, other: object) -> bool:
        return self is other or (other.__class__ is Slot and other.place == self.place)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((Slot, self.place))


_slot_at = functools.cache(Slot)  # those that are the same object are soon found to be equal

_SPECIAL = (0, 1, -1)
"""Numbers with which there is less to compute."""


def without_numbers(block: Block, apart: bool = False) -> tuple[Block, Numbers]:
    """The block with slots in place of its numbers, and the numbers. Equal numbers have one slot, so that what does
    the same still does, unless each is to have one `apart`. Code of the user's takes no numbers beside it; and where
    integers are computed with, what they become depends on the number."""
    if not any([op.numbers for op, _, _ in block.steps]) or block.opaque:
        return block, ()
    calls, specs = calls_of(block)
    found: dict[str, float] = {}
    places: dict[str, int] = {}

    def slot(op: Op, number: Any) -> Any:
        if isinstance(number, tuple):
            return tuple([slot(op, each) for each in number])
        if number in _SPECIAL or (op.own_way is not None and op.own_way(number)):
            return number
        written = f"{float.hex(float(number))} {len(places) if apart else ''}"
        found[written] = float(number)
        return _slot_at(places.setdefault(written, len(places)))

    steps: list[Step] = []
    for op, arguments, ins, outs in calls:
        if op.numbers and all([specs[i].differentiable for i in (*ins, *outs)]):
            named = zip(op.argument_names, arguments, strict=True)
            arguments = tuple([slot(op, each) if name in op.numbers else each for name, each in named])
        steps.append((op, arguments, ins))
    return block.with_steps(tuple(steps)) if found else block, tuple(found.values())


def slots_in(block: Block) -> int:
    """How many numbers of a block are inputs of its executable."""
    given = [argument for _, arguments, _ in block.steps for argument in arguments]
    flat = [each for argument in given for each in (argument if argument.__class__ is tuple else (argument,))]
    return len({each.place for each in flat if each.__class__ is Slot})


class General(NamedTuple):
    """A program without its numbers, and these."""

    program: Program
    numbers: np.ndarray[Any, Any] | None
    """As an executable takes them, before the arrays of the leaves; None where there are none."""

    @property
    def takes(self) -> tuple[Spec, ...]:
        """Shapes and dtypes of what an executable takes."""
        if self.numbers is None:
            return self.program.block.inputs
        return spec_of(self.numbers.shape, self.numbers.dtype), *self.program.block.inputs


def general(program: Program) -> General:
    """What all programs have in common that differ from this one in numbers alone, and its own numbers."""
    block, numbers = without_numbers(program.block)
    return General(program._replace(block=block), as_array(numbers, block.needs_x64))


def as_array(numbers: Numbers, needs_x64: bool) -> np.ndarray[Any, Any] | None:
    """Numbers as an executable takes them; None where there are none."""
    if not numbers:
        return None
    if needs_x64:
        return np.array(numbers, np.float64)
    # C casts too large numbers to infinity without NumPy's warning, as where they are a part of the program.
    return np.array([c_float(number).value for number in numbers], np.float32)


def filled(program: Program, numbers: Sequence[Any]) -> Program:
    """A program with numbers, or what stands for them where JAX traces it, in the place of slots."""

    def in_place(argument: Any) -> Any:
        if argument.__class__ is Slot:
            return numbers[argument.place]
        if argument.__class__ is tuple:
            return tuple(map(in_place, argument))
        return replace(argument, steps=of(argument.steps)) if argument.__class__ is Repeated else argument

    def of(steps: tuple[Step, ...]) -> tuple[Step, ...]:
        return tuple([(op, in_place(arguments), ins) for op, arguments, ins in steps])

    return program._replace(block=program.block.with_steps(of(program.block.steps)))


def with_slots(program: Program) -> Callable[..., tuple[Any, ...]]:
    """A program with slots as a function: an array of numbers and the arrays of the leaves in, arrays out."""

    def run(numbers: Any, *arrays: Any) -> tuple[Any, ...]:
        each = [lax.index_in_dim(numbers, i, keepdims=False) for i in range(numbers.shape[0])]
        return in_one(filled(program, each))(*arrays)

    return run
