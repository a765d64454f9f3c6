"""Profiling hooks: `TimerHook` measures the time of each function, `MemoryHook` its memory."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

import jax

from ...extend import Event, Function
from ..shown import shown_bytes
from .base import FunctionHook, by_key, label, table_of


class _Readings(threading.local):
    """Per thread, the readings taken before the functions now running, the innermost last. (A hook on a function
    observes it in all threads.)"""

    def __init__(self) -> None:
        self.before: list[float] = []


class MeasuringHook(FunctionHook):
    """Reads a meter before and after each function, forward and backward. Subclasses define the meter."""

    def __init__(self) -> None:
        self._readings = _Readings()

    def read(self) -> float:
        """The current reading."""
        raise NotImplementedError

    def record(self, function: Function, way: str, before: float, after: float) -> None:
        """Record the readings before and after a function; `way` is 'forward' or 'backward'."""
        raise NotImplementedError

    def __call__(self, event: Event) -> None:
        """Read the meter."""
        reading = self.read()
        if event.kind == "before":
            self._readings.before.append(reading)
            return
        way = "forward" if event.gradients is None else "backward"
        self.record(event.function, way, self._readings.before.pop(), reading)


class Times(NamedTuple):
    """The times of one kind of function, in seconds."""

    calls: int
    total: float
    median: float
    longest: float


class TimerHook(MeasuringHook):
    """Measures the time of each function, which runs by itself until its results are ready.

    The first run of an op on new shapes compiles it, which dominates the longest time; the median is the time of the op
    itself. A graph that is compiled as a whole is faster than the sum, since XLA fuses functions.
    """

    def __init__(self) -> None:
        super().__init__()
        self.history: list[tuple[str, str, float]] = []
        """For each run of a function: its name, 'forward' or 'backward', and seconds."""

    def read(self) -> float:
        """The clock, in seconds."""
        return time.perf_counter()

    def record(self, function: Function, way: str, before: float, after: float) -> None:
        """Record the elapsed time."""
        self.history.append((label(function), way, after - before))

    @property
    def total(self) -> float:
        """The total in seconds."""
        return sum(seconds for *_, seconds in self.history)

    @property
    def times(self) -> dict[tuple[str, str], Times]:
        """The times by name of the function and direction, the longest total first."""
        times = {
            key: Times(len(values), sum(values), sorted(values)[len(values) // 2], max(values))
            for key, values in by_key([((name, way), seconds) for name, way, seconds in self.history]).items()
        }
        return dict(sorted(times.items(), key=lambda item: -item[1].total))

    def summary(self) -> str:
        """A table, in milliseconds."""
        rows = [(*key, str(t.calls), *[f"{seconds * 1e3:.3f}" for seconds in t[1:]]) for key, t in self.times.items()]
        rows.append(("total", "", str(len(self.history)), f"{self.total * 1e3:.3f}", "", ""))
        return table_of(("function", "", "calls", "total ms", "median ms", "longest ms"), rows, words=2)


class Memory(NamedTuple):
    """The memory of one kind of function, in bytes."""

    calls: int
    grown: int
    """The total growth of the memory in use while they ran."""
    peak: int
    """The largest memory in use after one of them ran."""


class MemoryHook(MeasuringHook):
    """Measures the memory in use after each function, run by itself, in bytes.

    If the device reports its memory, that number is used. Otherwise, as on a CPU, it is the total size of all live JAX
    arrays in the process. A watched forward keeps intermediate values, so the peak is that of a backward that keeps
    everything.

    Args:
        device: The device; by default JAX's first.
    """

    def __init__(self, device: jax.Device | None = None) -> None:
        super().__init__()
        self.device = jax.devices()[0] if device is None else device
        self.history: list[tuple[str, str, int, int]] = []
        """For each run of a function: its name, 'forward' or 'backward', growth, and bytes in use afterwards."""

    @property
    def peak(self) -> int:
        """The largest number of bytes in use after a function."""
        return max((used for *_, used in self.history), default=0)

    def read(self) -> int:
        """The bytes in use now."""
        stats = self.device.memory_stats()
        if stats and "bytes_in_use" in stats:
            return int(stats["bytes_in_use"])
        return sum(array.nbytes for array in jax.live_arrays() if not array.is_deleted())

    def record(self, function: Function, way: str, before: float, after: float) -> None:
        """Record the growth and the current use."""
        self.history.append((label(function), way, int(after - before), int(after)))

    @property
    def memory(self) -> dict[tuple[str, str], Memory]:
        """Memory by name of the function and direction, the largest peak first."""
        memory = {
            key: Memory(len(values), sum(g for g, _ in values), max(u for _, u in values))
            for key, values in by_key([((name, way), (grown, used)) for name, way, grown, used in self.history]).items()
        }
        return dict(sorted(memory.items(), key=lambda item: -item[1].peak))

    def summary(self) -> str:
        """A table."""
        total = Memory(len(self.history), sum(grown for *_, grown, _ in self.history), self.peak)
        rows = [
            (*key, str(m.calls), shown_bytes(m.grown, 4), shown_bytes(m.peak, 4))
            for key, m in [*self.memory.items(), (("all", ""), total)]
        ]
        return table_of(("function", "", "calls", "grown", "peak"), rows, words=2)
