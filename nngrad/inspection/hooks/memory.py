"""MemoryHook: how much memory each function takes, and the most there was in use."""

from __future__ import annotations

from typing import NamedTuple

import jax

from ...graph import Function
from ...graph.tables import shown_bytes
from .base import label, table_of
from .measuring import MeasuringHook


class Memory(NamedTuple):
    """Memory of one kind of function, in bytes."""

    calls: int
    grown: int
    """By how much the memory in use grew while they ran, in all."""
    peak: int
    """The most that was in use when one of them had run."""


class MemoryHook(MeasuringHook):
    """Measures memory in use after each function, in bytes, with each function run by itself.

    On a device that keeps count of its memory it is what that says. Elsewhere, as on a CPU, it is the sum of
    all arrays of JAX that are alive in the process. Values in the middle of a graph are kept after a forward that is
    watched, so the peak is that of a backward that keeps everything.

    Args:
        device: The device, by default JAX's first.
    """

    def __init__(self, device: jax.Device | None = None) -> None:
        super().__init__()
        self.device = jax.devices()[0] if device is None else device
        self.history: list[tuple[str, str, int, int]] = []
        """Name of each function that ran, 'forward' or 'backward', growth, and bytes in use afterwards."""

    @property
    def peak(self) -> int:
        """The most bytes in use after a function."""
        return max((used for *_, used in self.history), default=0)

    def read(self) -> int:
        """Bytes that are in use now."""
        stats = self.device.memory_stats()
        if stats and "bytes_in_use" in stats:
            return int(stats["bytes_in_use"])
        return sum(array.nbytes for array in jax.live_arrays() if not array.is_deleted())

    def record(self, function: Function, way: str, before: float, after: float) -> None:
        """Keep the growth, and what is in use now."""
        self.history.append((label(function), way, int(after - before), int(after)))

    @property
    def memory(self) -> dict[tuple[str, str], Memory]:
        """Memory by name of the function and direction, the largest peak first."""
        found: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for name, way, grown, used in self.history:
            found.setdefault((name, way), []).append((grown, used))
        memory = {
            key: Memory(len(values), sum(g for g, _ in values), max(u for _, u in values))
            for key, values in found.items()
        }
        return dict(sorted(memory.items(), key=lambda item: -item[1].peak))

    def summary(self) -> str:
        """A table."""
        rows = [
            (name, way, str(m.calls), shown_bytes(m.grown, 4), shown_bytes(m.peak, 4))
            for (name, way), m in self.memory.items()
        ]
        grown = sum(g for _, _, g, _ in self.history)
        rows.append(("all", "", str(len(self.history)), shown_bytes(grown, 4), shown_bytes(self.peak, 4)))
        return table_of(("function", "", "calls", "grown", "peak"), rows, words=2)
