"""The steps of a repetition as those of a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...graph import Op, Spec
from ...graph.block import Step
from ...graph.spec import spec_of
from .listing import Listing, Window
from .repeated import AxisPart, Repeated, Total, part_of, put_at
from .repetitions import AlongSteps, Before, Each, Read, Repetition, Same, Slices, StepValue

Outside = AlongSteps | Slices | Each
"""What is read of an array, a part at each step."""


class Added(NamedTuple):
    """What is added up over steps, perhaps in a part of an array."""

    place: StepValue
    window: Window | None
    """Where it is put; None for what is no array's part."""
    first: int
    """The first step that counts."""
    end: int
    """The step after the last."""
    at: int
    """Where it would be put at step 0."""
    stride: int
    """How much further it is put at each step."""
    replaces: bool
    """Whether it takes the place of what is there."""


class RolledSteps:
    """The calls of a step, with values numbered as `Repeated` has it.

    Args:
        listing: All calls.
        each: The repetition.
    """

    def __init__(self, listing: Listing, each: Repetition) -> None:
        self._listing, self._each = listing, each
        reads = list({read: None for reads in each.reads for read in reads})
        self.same = list({read.number: None for read in reads if isinstance(read, Same)})
        """The numbers in the program of what is the same at each step."""
        self.handed = list({
            Before(read.place, read.starts[k:]): None
            for read in reads if isinstance(read, Before) for k in range(len(read.starts))
        })  # fmt: skip
        """What is handed on from step to step."""
        self.outside = [read for read in reads if isinstance(read, Outside)]
        """What parts are read of."""
        self._parts: list[AxisPart] = []
        self._steps: list[Step] = []
        self._count = 0
        first = len(self.same)
        self._numbers: dict[Read, int] = {Same(number): k for k, number in enumerate(self.same)}
        self._numbers.update({before: first + k for k, before in enumerate(self.handed)})
        for k, read in enumerate(self.outside):
            self._numbers[read] = self._read(read, first + len(self.handed) + k)
        for j, reads_of_call in enumerate(each.reads):
            call = listing.calls[each.start + j]
            made = self._add(call.op, call.arguments, [self._numbers[read] for read in reads_of_call], len(call.outs))
            self._numbers.update({Before(StepValue(j, k), ()): made - k for k in range(len(call.outs))})

    def number(self, read: Read) -> int:
        """The number of a value in the loop."""
        return self._numbers[read]

    def in_block(self, place: StepValue, step: int) -> int:
        """The number that a value has in the program, at a step."""
        each = self._each
        return self._listing.calls[each.start + step * each.period + place.call].outs[place.output]

    def spec(self, place: StepValue) -> Spec:
        """Shape and dtype of a value."""
        return self._listing.specs[self.in_block(place, 0)]

    def total(self, added: Added) -> Total:
        """A sum over steps."""
        place, window, first, end, at, stride, replaces = added
        number = self.number(Before(place, ()))
        if window is None:
            return Total(number, self.spec(place), first, end, None, False)
        key, part = _moving(window, at, stride)
        shape = (*window.source[: part.axis], part.size, *window.source[part.axis + 1 :])
        number = self._add(put_at, (key, shape), [number])
        return Total(number, spec_of(window.source, self.spec(place).dtype), first, end, part, replaces)

    def loop(self, last: Sequence[StepValue], totals: Sequence[Total], stacked: Sequence[Before]) -> Repeated:
        """The loop, of which these values are wanted."""
        after = [self.number(Before(before.place, before.starts[1:])) for before in self.handed]
        specs = [self.spec(place) for place in [*last, *[before.place for before in stacked]]]
        return Repeated(
            tuple(self._steps), self._each.length, len(self.same), tuple(after), tuple(self._parts),
            tuple([self.number(Before(place, ())) for place in last]), tuple(totals),
            tuple([self.number(before) for before in stacked]), tuple(specs),
        )  # fmt: skip

    def _add(self, op: Op, arguments: tuple[Any, ...], ins: Sequence[int], count: int = 1) -> int:
        """Add a step; returns the number of its first value."""
        self._steps.append((op, arguments, tuple(ins)))
        self._count += count
        return ~(self._count - count)

    def _read(self, read: Outside, number: int) -> int:
        """Add a part that a step is given under a number, and what makes of it what calls read; returns the number of
        that."""
        if isinstance(read, Slices):
            key, part = _moving(read.window, read.first, read.stride)
            self._parts.append(part)
            return self._add(part_of, (key,), [number])
        first, stride = (read.first, read.stride) if isinstance(read, AlongSteps) else (0, 1)
        self._parts.append(AxisPart(0, first, stride, 1))
        return self._add(part_of, ((0,),), [number])


def _moving(window: Window, first: int, stride: int) -> tuple[tuple[Any, ...], AxisPart]:
    """The part of an array that a window needs at each step, and the key of the window in that."""
    entry = window.key[window.entry]
    _, count, step = (0, 1, 1) if isinstance(entry, int) else entry
    low = min(0, (count - 1) * step)
    new = 0 if isinstance(entry, int) else (-low, count, step)
    key = (*window.key[: window.entry], new, *window.key[window.entry + 1 :])
    return key, AxisPart(window.axis, first + low, stride, (count - 1) * abs(step) + 1)

