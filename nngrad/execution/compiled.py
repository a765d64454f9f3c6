"""Structure in, executable out: each structure is compiled once, and kept while it is in use."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax

from ..graph.process import check_process
from ..graph.spec import wide_types
from .host_calls import finished
from .lower import Program, lower


class CacheInfo(NamedTuple):
    """Counts of a cache since it was made or cleared."""

    hits: int
    misses: int
    size: int
    capacity: int


class BoundedCache:
    """A table that forgets what was used longest ago when it grows past its capacity. Thread-safe."""

    def __init__(self, capacity: int) -> None:
        self._entries: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()
        self._hits = self._misses = 0
        self.capacity = capacity

    def find(self, key: Hashable) -> Any:
        """What is kept under `key`, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._misses += 1
            else:
                self._entries.move_to_end(key)
                self._hits += 1
            return entry

    def keep(self, key: Hashable, entry: Any) -> Any:
        """Keep `entry`, unless another thread was faster; returns what is kept."""
        with self._lock:
            entry = self._entries.setdefault(key, entry)
            while len(self._entries) > self.capacity:
                self._entries.popitem(last=False)
            return entry

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What is kept under `key`; made by `make` when there is nothing."""
        entry = self.find(key)
        return self.keep(key, make()) if entry is None else entry

    def info(self) -> CacheInfo:
        """Hits, misses, size and capacity."""
        return CacheInfo(self._hits, self._misses, len(self._entries), self.capacity)

    def resize(self, capacity: int) -> None:
        """Set how many entries are kept at most."""
        if not isinstance(capacity, int) or capacity < 1:
            raise ValueError(f"capacity: expected a positive int, got {capacity!r}")
        with self._lock:
            self.capacity = capacity
            while len(self._entries) > capacity:
                self._entries.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self._hits = self._misses = 0


executables = BoundedCache(512)
"""Executables by structure. `executables.info()`, `.clear()` and `.resize(n)` are for users too."""


def on_device(device: jax.Device | None, wide: bool, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` in the settings that its values need, and in a process where JAX can compute."""

    def run(*arrays: Any) -> Any:
        check_process()
        if device is None and not wide:
            return function(*arrays)
        with wide_types(wide):
            if device is None:
                return function(*arrays)
            with jax.default_device(device):
                return function(*jax.device_put(arrays, device))

    return run


def executable_of(program: Program) -> Callable[..., tuple[Any, ...]]:
    """The executable of a program: arrays of the leaves in, arrays of the results out."""

    def make() -> Callable[..., Any]:
        function = finished(jax.jit(lower(program)), program.opaque)
        # By itself where it can be, without another call: that the process can compute, `arrays_of` sees.
        return on_device(program.device, program.wide, function) if program.device or program.wide else function

    check_process()
    result: Callable[..., tuple[Any, ...]] = executables.get(program, make)
    return result
