"""TimerHook: how long each function takes, forward and backward."""

from __future__ import annotations

import time
from typing import NamedTuple

from ...graph import Function
from .base import label, table_of
from .measuring import MeasuringHook


class Times(NamedTuple):
    """Times of one kind of function, in seconds."""

    calls: int
    total: float
    median: float
    longest: float


class TimerHook(MeasuringHook):
    """Measures how long functions take, each run by itself; results are waited for.

    The first run of an op on shapes that are new is compiled, which takes most of the longest time; the median
    tells what the op itself takes. A graph that is compiled as a whole is faster than the sum: XLA fuses functions.
    """

    def __init__(self) -> None:
        super().__init__()
        self.history: list[tuple[str, str, float]] = []
        """Name of each function that ran, 'forward' or 'backward', and seconds."""

    def read(self) -> float:
        """The clock, in seconds."""
        return time.perf_counter()

    def record(self, function: Function, way: str, before: float, after: float) -> None:
        """Keep the time between."""
        self.history.append((label(function), way, after - before))

    @property
    def total(self) -> float:
        """Seconds in all."""
        return sum(seconds for _, _, seconds in self.history)

    @property
    def times(self) -> dict[tuple[str, str], Times]:
        """The times by name of the function and direction, the longest total first."""
        found: dict[tuple[str, str], list[float]] = {}
        for name, way, seconds in self.history:
            found.setdefault((name, way), []).append(seconds)
        times = {
            key: Times(len(values), sum(values), sorted(values)[len(values) // 2], max(values))
            for key, values in found.items()
        }
        return dict(sorted(times.items(), key=lambda item: -item[1].total))

    def summary(self) -> str:
        """A table, in milliseconds."""
        rows = [
            (name, way, str(t.calls), f"{t.total * 1e3:.3f}", f"{t.median * 1e3:.3f}", f"{t.longest * 1e3:.3f}")
            for (name, way), t in self.times.items()
        ]
        rows.append(("total", "", str(len(self.history)), f"{self.total * 1e3:.3f}", "", ""))
        return table_of(("function", "", "calls", "total ms", "median ms", "longest ms"), rows, words=2)
