"""Find unrolled recurrences in a list of calls.

A step of such a recurrence is a number of calls, and the next step repeats them: the same ops with the same arguments
on arrays of the same shapes. From step to step, each call reads the same value; or a value of its own step, or of an
earlier one; or a value at a constant distance from the one before: the next slice of an array, or the next step's value
of another recurrence. Such calls are steps of a loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from .listing import Listing, Window
from .stretches import Stretch, stretches_of
from .thresholds import LEAST, MOST_BEFORE, TRIALS


class StepValue(NamedTuple):
    """A value of each step of a repetition: the index of the call in the step, and of the output."""

    call: int
    output: int


class Same(NamedTuple):
    """A read of one value at all steps."""

    number: int


class Before(NamedTuple):
    """A read of a value of the call's own step, or of an earlier one."""

    place: StepValue
    starts: tuple[int, ...]
    """The values read at the first steps, which have no earlier one; as many as it looks back."""


class AlongSteps(NamedTuple):
    """A read of a value of another repetition's steps, one after another."""

    repetition: int
    """The start of that repetition."""
    read: Before
    """The value; with `starts`, the one from before each step."""
    first: int
    stride: int


class Slices(NamedTuple):
    """A read of a part of one array, at an index that moves on with each step."""

    window: Window
    first: int
    stride: int


Read = Same | Before | AlongSteps | Slices


class Repetition(NamedTuple):
    """Calls that form the steps of a loop."""

    start: int
    """The index of the first call."""
    period: int
    """The number of calls per step."""
    length: int
    """The number of steps."""
    reads: tuple[tuple[Read, ...], ...]
    """The reads of each call of a step."""

    @property
    def end(self) -> int:
        """The index after the last call."""
        return self.start + self.period * self.length

    def where(self, position: int) -> tuple[int, int]:
        """The step of a call in it, and the call's index within the step."""
        return divmod(position - self.start, self.period)


def regular_stretches(listing: Listing) -> list[Stretch]:
    """The stretches of a listing that may be repetitions, in order and without overlaps."""
    taken = bytearray(len(listing.calls))
    regular: list[Stretch] = []
    for stretch in stretches_of(listing.labels(), LEAST):
        for start, end in stretch.free_parts(taken, LEAST):
            for part in _regular(listing, Stretch(start, end, stretch.period)):
                regular.append(part)
                taken[part.start : part.end] = b"\1" * (part.end - part.start)
    return sorted(regular)


def repetitions_of(listing: Listing, stretches: Iterable[Stretch]) -> dict[Stretch, Repetition]:
    """The repetitions in stretches of a listing, in order."""
    repetitions: dict[Stretch, Repetition] = {}
    waiting = sorted(stretches, reverse=True)
    while waiting:
        stretch = waiting.pop()
        before = sorted([other for other in repetitions.values() if other.end <= stretch.start])
        repetition = _RepetitionFinder(listing, before).repetition(stretch)
        if repetition is not None:
            repetitions[stretch] = repetition
            for start, end in ((repetition.end, stretch.end), (stretch.start, repetition.start)):
                if 2 * stretch.period * LEAST <= end - start:
                    waiting.append(Stretch(start, end, stretch.period))
    return dict(sorted(repetitions.items(), key=lambda item: item[1].start))


def _regular(listing: Listing, stretch: Stretch) -> Iterator[Stretch]:
    """The parts of a stretch in which reads advance evenly, with a step or two at either end."""
    start, end, period = stretch
    links = [listing.links(n, period) for n in range(start, end - period)]
    even = [a == b for a, b in zip(links, links[period:], strict=False)]
    first, done = None, start
    for i, is_even in enumerate([*even, False]):
        if is_even and first is None:
            first = i
        elif not is_even and first is not None:
            if i - first >= (LEAST - 2) * period:
                low, high = max(done, start + first - 2 * period), min(end, start + i + 4 * period)
                if high - low >= LEAST * period:
                    yield Stretch(low, high, period)
                    done = high
            first = None


class _Uneven(Exception):
    """A step reads something different from the others."""

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


class _RepetitionFinder:
    """Determines what the calls of a stretch read, step by step.

    Args:
        listing: The calls.
        known: The repetitions before the stretch.
    """

    def __init__(self, listing: Listing, known: Sequence[Repetition]) -> None:
        self._listing = listing
        self._known = known

    def repetition(self, stretch: Stretch) -> Repetition | None:
        """The repetition in a stretch, or None."""
        start = self._best_start(stretch)
        period = stretch.period
        count = (stretch.end - start) // period
        for _ in range(TRIALS):
            if count < LEAST:
                return None
            try:
                reads = [self._reads_of(start, period, count, j) for j in range(period)]
            except _Uneven as uneven:
                if uneven.step < count // 2:
                    start += (uneven.step + 1) * period
                    count -= uneven.step + 1
                else:
                    count = uneven.step
                continue
            return Repetition(start, period, count, tuple(reads))
        return None

    def _best_start(self, stretch: Stretch) -> int:
        """The start of a step that minimises carries and leftover calls."""
        start, end, period = stretch
        middle = start + (end - start) // (2 * period) * period
        reach: dict[tuple[int, int], int] = {}
        for n in range(middle, middle + period):
            links = self._listing.links(n - period, period)
            for i, link in zip(self._listing.calls[n].ins, links, strict=True):
                place = self._listing.position.get(i)
                if place is not None and link == period and place[0] >= start:
                    maker, output = place
                    key = ((maker - start) % period, output)
                    reach[key] = max(reach.get(key, 0), n - maker)
        changes = [0] * (period + 1)
        always = 0
        for (residue, _), distance in reach.items():
            always += distance // period
            first, rest = residue + 1, distance % period
            for low, high in ((first, first + rest), (first - period, first + rest - period)):
                low, high = max(low, 0), min(high, period)
                if low < high:
                    changes[low] += 1
                    changes[high] -= 1
        best, least, carried = start, None, always
        for phase in range(period):
            carried += changes[phase]
            cost = 2 * carried + (end - start - phase) % period + phase
            if least is None or cost < least:
                best, least = start + phase, cost
        return best

    def _reads_of(self, start: int, period: int, count: int, j: int) -> tuple[Read, ...]:
        calls = [self._listing.calls[start + t * period + j] for t in range(count)]
        return tuple([self._read(start, period, count, list(ins)) for ins in zip(*[c.ins for c in calls], strict=True)])

    def _read(self, start: int, period: int, count: int, numbers: list[int]) -> Read:
        end = start + period * count
        places = [self._listing.position.get(i, (-1, 0)) for i in numbers]
        inside = [start <= n < end for n, _ in places]
        if not any(inside):
            if numbers.count(numbers[0]) == count:
                self._check_source(numbers[0], start, end)
                return Same(numbers[0])
            return self._outside(start, end, numbers)
        n, output = places[-1]
        step, call = divmod(n - start, period)
        back = count - 1 - step
        if not inside[-1] or not 0 <= back <= min(MOST_BEFORE, count - 2):
            raise _Uneven(count - 1)
        for t in range(count - 2, -1, -1):
            if t >= back and places[t] != (start + (t - back) * period + call, output):
                raise _Uneven(t)
            if t < back:
                if inside[t]:
                    raise _Uneven(t)
                self._check_source(numbers[t], start, end)
        return Before(StepValue(call, output), tuple(numbers[:back]))

    def _check_source(self, i: int, start: int, end: int) -> None:
        """Raise `_Uneven` if a value is a part of, or made from, one within the stretch."""
        n, _ = self._listing.position.get(self._listing.whole(i), (-1, 0))
        if start <= n < end:
            raise _Uneven(0)

    def _outside(self, start: int, end: int, numbers: list[int]) -> Read:
        """The read of values before the stretch."""
        count = len(numbers)
        at = [self._listing.coordinate(i) for i in numbers]
        middle = count // 2
        family, stride = at[middle].family, at[middle].place - at[middle - 1].place
        first = at[middle].place - middle * stride
        if at[middle - 1].family != family:
            raise _Uneven(middle)
        if isinstance(family, Window):
            for t in _from_the_middle(count):
                if at[t] != (family, first + t * stride):
                    raise _Uneven(t)
            self._check_source(numbers[middle], start, end)
            return Slices(family, first, stride)
        if isinstance(family, int):
            along = self._along(family, first, stride, numbers)
            if along is not None:
                return along
        raise _Uneven(middle)  # perhaps one half is even

    def _along(self, output: int, first: int, stride: int, numbers: list[int]) -> AlongSteps | None:
        """The read of another repetition's values, or None."""
        count = len(numbers)
        position = first + count // 2 * stride
        for other in self._known:
            if other.start <= position < other.end and stride % other.period == 0:
                break
        else:
            return None
        _, call = other.where(position)
        (begin, _), steps = other.where(first), stride // other.period
        place = StepValue(call, output)
        starts: tuple[int, ...] = ()
        for t in _from_the_middle(count):
            step = begin + t * steps
            if 0 <= step < other.length:
                if self._listing.position.get(numbers[t]) == (first + t * stride, output):
                    continue
            elif step == -1:
                # The value from before the first step takes the place of an earlier step's.
                start = Before(place, (numbers[t],))
                if any([start in reads for reads in other.reads]):
                    starts = start.starts
                    continue
            raise _Uneven(t)
        if starts and max(begin, begin + (count - 1) * steps) == other.length - 1:
            raise _Uneven(0 if begin == -1 else count - 1)  # a single stack cannot have both
        return AlongSteps(other.start, Before(place, starts), begin + len(starts), steps)


def _from_the_middle(count: int) -> list[int]:
    """The steps, from the middle outwards."""
    return sorted(range(count), key=lambda t: -min(t, count - 1 - t))
