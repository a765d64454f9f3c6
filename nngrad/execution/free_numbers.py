"""Programs that differ in numbers alone share an executable.

A number is part of a graph's structure: zeros and ones vanish, powers are multiplied out, and most numbers never
change. So a program is compiled as it is at first. When it comes again with other numbers, as `lam * penalty` does
where lam is annealed, it is compiled once more with its numbers as an input, and from then on no number compiles again.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_float
from typing import Any

import numpy as np

from ..graph import Spec
from ..graph.block import Block
from ..graph.spec import spec_of
from .calls import calls_of
from .program import Program, in_one

Numbers = tuple[float, ...]


class Slot(float):
    """A number that is an input of a program. It equals whatever number is at its place in another one."""

    __slots__ = ("place",)

    place: int

    def __new__(cls, number: float, place: int) -> Slot:
        slot = super().__new__(cls, number)
        slot.place = place
        return slot

    def __eq__(self, other: object) -> bool:
        return other.__class__ is Slot and other.place == self.place

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((Slot, self.place))


_NOTHING_TO_MULTIPLY = (0, 1, -1)
"""Numbers that stay in a weighted sum or a constant: with them there is less to compute."""


def without_numbers(block: Block) -> tuple[Block, Numbers]:
    """The block with slots in place of its numbers, and the numbers."""
    found: list[float] = []

    def slot(number: Any) -> Slot:
        found.append(float(number))
        return Slot(number, len(found) - 1)

    steps = []
    for op, arguments, ins in block.steps:
        if op.numbers:
            given = list(arguments)
            for name in op.numbers:
                i = op.argument_names.index(name)
                each = given[i]
                if isinstance(each, tuple):
                    given[i] = tuple([n if n in _NOTHING_TO_MULTIPLY else slot(n) for n in each])
                elif (ins and not op.variadic) or each not in _NOTHING_TO_MULTIPLY:
                    given[i] = slot(each)
            arguments = tuple(given)
        steps.append((op, arguments, ins))
    return block.with_steps(tuple(steps)), tuple(found)


def can_take_numbers(general: Block) -> bool:
    """Whether it holds no code of the user's, and the ops with slots compute in floating dtypes alone: what an integer
    becomes depends on the number."""
    calls, specs = calls_of(general)
    return not general.opaque and all([specs[i].differentiable for call in calls if call.op.numbers for i in call.ins])


def with_slots(program: Program) -> Callable[..., tuple[Any, ...]]:
    """A program with slots as a function: an array of numbers and the arrays of the leaves in, arrays out."""

    def run(numbers: Any, *arrays: Any) -> tuple[Any, ...]:
        def filled(argument: Any) -> Any:
            if isinstance(argument, tuple):
                return tuple(map(filled, argument))
            return numbers[argument.place] if argument.__class__ is Slot else argument

        steps = tuple([(op, filled(arguments), ins) for op, arguments, ins in program.block.steps])
        return in_one(program._replace(block=program.block.with_steps(steps)))(*arrays)

    return run


def as_array(numbers: Numbers, needs_x64: bool) -> np.ndarray[Any, Any]:
    """Numbers as an executable takes them."""
    if needs_x64:
        return np.array(numbers, np.float64)
    # C casts too large numbers to infinity without NumPy's warning, as where they are a part of the program.
    return np.array([c_float(number).value for number in numbers], np.float32)


def spec_of_numbers(numbers: Numbers, needs_x64: bool) -> Spec:
    """Shape and dtype of that array."""
    return spec_of((len(numbers),), np.dtype(np.float64 if needs_x64 else np.float32))
