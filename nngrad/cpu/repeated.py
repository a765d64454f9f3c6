"""The op of a rolled loop: what an unrolled recurrence becomes.

It exists only for compilation. Its gradient is never needed, since the program already contains that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..extend import Array, Op, RolledLoop, Spec, Static, op, spec_of
from .listing import Listing, Window
from .repetitions import AlongSteps, Before, Read, Repetition, Same, Slices, StepValue


class AxisPart(NamedTuple):
    """A part of an array along one axis, at an index that moves on with each step."""

    axis: int
    first: int
    stride: int
    size: int

    def place(self, step: Any) -> Any:
        """The start index at a step."""
        return step * jnp.int32(self.stride) + jnp.int32(self.first)

    def of(self, x: Any, step: Any) -> Any:
        """The part of `x` at a step, keeping the axis."""
        return lax.dynamic_slice_in_dim(x, self.place(step), self.size, self.axis)


class Total(NamedTuple):
    """A sum over steps."""

    value: int
    """The number of the value that is added up."""
    spec: Spec
    """Shape and dtype of the sum."""
    first: int
    """The first step that counts."""
    end: int
    """The step after the last that counts."""
    part: AxisPart | None
    """The part of the sum that each step adds to; None for all of it."""


@dataclass(frozen=True)
class Repeated(RolledLoop):
    """A loop. Values are numbered as in a program; the inputs of a step are those that are the same at each step, the
    carries, and parts of arrays."""

    same: int
    """The number of inputs that are the same at each step."""
    after: tuple[int, ...]
    """The numbers of the new carries."""
    parts: tuple[AxisPart, ...]
    """The parts that are a step's further inputs, each of one array."""
    last: tuple[int, ...]
    """The numbers of the values whose last one is wanted."""
    totals: tuple[Total, ...]
    stacked: tuple[int, ...]
    """The numbers of the values that are stacked."""
    specs: tuple[Spec, ...]
    """Shapes and dtypes of the last and the stacked values, in this order."""

    @property
    def functions(self) -> int:
        """The number of functions in each step, apart from those that move parts of arrays."""
        return sum([op not in MOVING for op, _, _ in self.steps])

    def results(self, inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
        """Shape and dtype of each output: the last carries, last values, totals and stacks."""
        carried = inputs[self.same : self.same + len(self.after)]
        n = len(self.last)
        stacks = [spec_of((self.length, *spec.shape), spec.dtype) for spec in self.specs[n:]]
        return (*carried, *self.specs[:n], *[total.spec for total in self.totals], *stacks)


class _LoopOfSteps(Op):
    """An op that derives the shapes of its outputs from its arguments."""

    def result_specs(self, inputs: tuple[Spec, ...], arguments: tuple[Any, ...]) -> tuple[Spec, ...]:
        """Shape and dtype of each output."""
        (loop,) = arguments
        results: tuple[Spec, ...] = loop.results(inputs)
        return results


def _loop_of_steps(*x: Array, loop: Static) -> tuple[jax.Array, ...]:
    """A loop over steps; see `Repeated`.

    Args:
        x: The inputs that are the same at each step, the first carries, and the arrays that parts are taken from.
        loop: The loop.

    Returns:
        The last carries, last values, totals, and stacks.
    """
    first = loop.same + len(loop.after)
    same, start, sources = x[: loop.same], x[loop.same : first], x[first:]

    def step(carry: Any, _: tuple[()]) -> Any:
        t, handed, _, totals = carry
        inputs = (*same, *handed, *[part.of(array, t) for part, array in zip(loop.parts, sources, strict=True)])
        values = loop.values(inputs)

        def value(i: int) -> Any:
            return inputs[i] if i >= 0 else values[~i]

        after = (
            lax.add(t, jnp.int32(1)),
            tuple(map(value, loop.after)),
            tuple(map(value, loop.last)),
            tuple([
                _added(added, total, value(added.value), t, loop.length)
                for added, total in zip(loop.totals, totals, strict=True)
            ]),
        )
        return after, tuple(map(value, loop.stacked))

    last = tuple([lax.full(s.shape, 0, s.dtype) for s in loop.specs[: len(loop.last)]])
    totals = tuple([lax.full(added.spec.shape, 0, added.spec.dtype) for added in loop.totals])
    first = jnp.int32(0), tuple(start), last, totals
    (_, handed, last, totals), stacks = lax.scan(step, first, (), length=loop.length)
    return (*handed, *last, *totals, *stacks)


def _added(total: Total, sum_: Any, value: Any, t: Any, length: int) -> Any:
    """The total after a step."""
    before = sum_ if total.part is None else total.part.of(sum_, t)
    after = lax.add(before, value)
    if total.first > 0 or total.end < length:
        counts = lax.bitwise_and(lax.ge(t, jnp.int32(total.first)), lax.lt(t, jnp.int32(total.end)))
        after = lax.select(lax.broadcast(counts, after.shape), after, before)
    if total.part is None:
        return after
    return lax.dynamic_update_slice_in_dim(sum_, after, total.part.place(t), total.part.axis)


_loop_of_steps.__name__ = "loop_of_steps"
loop_of_steps = _LoopOfSteps(_loop_of_steps, type_name="LoopOfSteps", multiple_results=True)


@op(fuses="moving")
def part_of(x: Array, /, key: Static) -> jax.Array:
    """`x[key]`."""
    part: jax.Array = x[tuple([_index(entry) for entry in key])]
    return part


def _index(entry: Any) -> Any:
    """An entry of a key as Python's index or slice."""
    if not isinstance(entry, tuple):
        return entry
    start, count, step = entry
    end = start + count * step
    return slice(start, None if end < 0 else end, step)


@op(fuses="moving")
def put_at(y: Array, /, key: Static, shape: Static) -> jax.Array:
    """Zeros of a shape with `y` at `[key]`."""
    places = [(entry, 1, 1) if isinstance(entry, int) else entry for entry in key if entry is not None]
    y = lax.rev(lax.reshape(y, [count for _, count, _ in places]), [i for i, p in enumerate(places) if p[2] < 0])
    margins = []
    for (start, count, step), n in zip(places, shape, strict=True):
        low, span = min(start, start + (count - 1) * step), (count - 1) * abs(step) + 1
        margins.append((low, n - low - span, abs(step) - 1 if count > 1 else 0))
    return lax.pad(y, lax.full((), 0, y.dtype), margins)


MOVING = frozenset({part_of, put_at})
"""Ops that take parts of arrays for the steps of a loop, or put them there."""


Outside = AlongSteps | Slices
"""Reads of an array, a part at each step."""


class Added(NamedTuple):
    """A value added up over steps, possibly in a part of an array."""

    place: StepValue
    window: Window | None
    """The window that it is put into; None if it is not part of an array."""
    first: int
    """The first step that counts."""
    end: int
    """The step after the last."""
    at: int
    """The index at step 0."""
    stride: int
    """How far the index moves at each step."""


class RolledSteps:
    """The calls of a step, with values numbered as in `Repeated`.

    Args:
        listing: All calls.
        repetition: The repetition.
    """

    def __init__(self, listing: Listing, repetition: Repetition) -> None:
        self._listing, self._repetition = listing, repetition
        reads = list({read: None for reads in repetition.reads for read in reads})
        self.same = list({read.number: None for read in reads if isinstance(read, Same)})
        """The numbers in the program of the values that are the same at each step."""
        self.handed = list({
            Before(read.place, read.starts[k:]): None
            for read in reads if isinstance(read, Before) for k in range(len(read.starts))
        })  # fmt: skip
        """The carries."""
        self.outside = [read for read in reads if isinstance(read, Outside)]
        """The reads of arrays by parts."""
        self._parts: list[AxisPart] = []
        self._steps: list[tuple[Op, tuple[Any, ...], tuple[int, ...]]] = []
        self._count = 0
        first = len(self.same)
        self._numbers: dict[Read, int] = {Same(number): k for k, number in enumerate(self.same)}
        self._numbers.update({before: first + k for k, before in enumerate(self.handed)})
        for k, read in enumerate(self.outside):
            self._numbers[read] = self._read(read, first + len(self.handed) + k)
        for j, reads_of_call in enumerate(repetition.reads):
            call = listing.calls[repetition.start + j]
            number = self._add(call.op, call.arguments, [self._numbers[read] for read in reads_of_call], len(call.outs))
            self._numbers.update({Before(StepValue(j, k), ()): number - k for k in range(len(call.outs))})

    def number(self, read: Read) -> int:
        """The number of a value in the loop."""
        return self._numbers[read]

    def in_block(self, place: StepValue, step: int) -> int:
        """The number of a value in the program at a step."""
        repetition = self._repetition
        return self._listing.calls[repetition.start + step * repetition.period + place.call].outs[place.output]

    def spec(self, place: StepValue) -> Spec:
        """Shape and dtype of a value."""
        return self._listing.specs[self.in_block(place, 0)]

    def total(self, added: Added) -> Total:
        """A sum over steps."""
        place, window, first, end, at, stride = added
        number = self.number(Before(place, ()))
        if window is None:
            return Total(number, self.spec(place), first, end, None)
        key, part = _moving(window, at, stride)
        shape = (*window.source[: part.axis], part.size, *window.source[part.axis + 1 :])
        number = self._add(put_at, (key, shape), [number])
        return Total(number, spec_of(window.source, self.spec(place).dtype), first, end, part)

    def loop(self, last: Sequence[StepValue], totals: Sequence[Total], stacked: Sequence[Before]) -> Repeated:
        """The loop with these results."""
        after = [self.number(Before(before.place, before.starts[1:])) for before in self.handed]
        specs = [self.spec(place) for place in [*last, *[before.place for before in stacked]]]
        return Repeated(
            tuple(self._steps), self._repetition.length, len(self.same), tuple(after), tuple(self._parts),
            tuple([self.number(Before(place, ())) for place in last]), tuple(totals),
            tuple([self.number(before) for before in stacked]), tuple(specs),
        )  # fmt: skip

    def _add(self, op: Op, arguments: tuple[Any, ...], ins: Sequence[int], count: int = 1) -> int:
        """Append a step; returns the number of its first value."""
        self._steps.append((op, arguments, tuple(ins)))
        self._count += count
        return ~(self._count - count)

    def _read(self, read: Outside, number: int) -> int:
        """Append a part that each step receives under a number, and the step that extracts what calls read; returns the
        number of its result."""
        if isinstance(read, Slices):
            key, part = _moving(read.window, read.first, read.stride)
            self._parts.append(part)
            return self._add(part_of, (key,), [number])
        self._parts.append(AxisPart(0, read.first, read.stride, 1))
        return self._add(part_of, ((0,),), [number])


def _moving(window: Window, first: int, stride: int) -> tuple[tuple[Any, ...], AxisPart]:
    """The part of an array that a window needs at each step, and the key of the window in that part."""
    entry = window.key[window.entry]
    _, count, step = (0, 1, 1) if isinstance(entry, int) else entry
    low = min(0, (count - 1) * step)
    new = 0 if isinstance(entry, int) else (-low, count, step)
    key = (*window.key[: window.entry], new, *window.key[window.entry + 1 :])
    return key, AxisPart(window.axis, first + low, stride, (count - 1) * abs(step) + 1)
