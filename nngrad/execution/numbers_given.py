"""Functions that take the numbers of a program beside the arrays of its leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..graph import Spec
from .free_numbers import Slot
from .lower import whole
from .program import Program, in_one


def taking_numbers(general: Program, specs: Sequence[Spec]) -> Callable[..., tuple[Any, ...]]:
    """A program with slots as a function of an array of numbers and the arrays of the leaves, which are of `specs`."""
    return whole(general, _with_slots, specs)


def _with_slots(program: Program) -> Callable[..., tuple[Any, ...]]:
    """Numbers and the arrays of the leaves in, arrays out."""

    def run(numbers: Any, *arrays: Any) -> tuple[Any, ...]:
        def filled(argument: Any) -> Any:
            if isinstance(argument, tuple):
                return tuple(map(filled, argument))
            return numbers[argument.place] if argument.__class__ is Slot else argument

        steps = tuple([(op, filled(arguments), ins) for op, arguments, ins in program.steps])
        return in_one(program._replace(steps=steps))(*arrays)

    return run
