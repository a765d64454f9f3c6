"""Periodic stretches of a sequence of labels, such as the unrolled steps of a recurrence, in linear time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .thresholds import MOST_PERIODS, WINDOWS


class Stretch(NamedTuple):
    """A part of a sequence in which each label returns after `period` places."""

    start: int
    end: int
    period: int

    def free_parts(self, taken: bytearray, least: int) -> Iterator[tuple[int, int]]:
        """The start and end of each part of it that is not taken, and still repeats `least` times."""
        start = self.start
        while start < self.end:
            end = taken.find(1, start, self.end)
            end = self.end if end < 0 else end
            if end - start >= least * self.period:
                yield start, end
            start = end
            while start < self.end and taken[start]:
                start += 1


def stretches_of(labels: Sequence[int], least: int) -> list[Stretch]:
    """Periodic stretches, those that cover the most repetitions first; they may overlap.

    Args:
        labels: The sequence, with equal numbers for equal elements.
        least: The least number of repetitions.
    """
    stretches = []
    for period in _periods(labels, least):
        start = None
        same = [a == b for a, b in zip(labels, labels[period:], strict=False)]
        for i, equal in enumerate([*same, False]):
            if equal and start is None:
                start = i
            elif not equal and start is not None:
                if i - start >= (least - 1) * period:
                    stretches.append(Stretch(start, i + period, period))
                start = None
    return sorted(stretches, key=lambda s: (s.start - s.end + s.period, s.period))


def _periods(labels: Sequence[int], least: int) -> list[int]:
    """The distances at which windows return, the most frequent ones for each window length."""
    periods: set[int] = set()
    numbers = list(labels)
    width = 1
    for window in WINDOWS:
        while width < window:
            # Windows of twice the width, renumbered: two are equal if their halves are.
            pairs = zip(numbers, numbers[width:], strict=False)
            known: dict[tuple[int, int], int] = {}
            numbers = [known.setdefault(pair, len(known)) for pair in pairs]
            width *= 2
        last: dict[int, int] = {}
        distances: Counter[int] = Counter()
        for i, number in enumerate(numbers):
            before = last.get(number)
            if before is not None:
                distances[i - before] += 1
            last[number] = i
        limit = len(labels) // least
        often = [d for d, count in distances.items() if d <= limit and count >= d]
        periods.update(sorted(often, key=lambda d: -distances[d])[:MOST_PERIODS])
    return sorted(periods)
