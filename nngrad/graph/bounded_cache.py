"""A bounded cache, and the caches of facts about structures of graphs, which are cleared together."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

from .op import Op


class CacheInfo(NamedTuple):
    """Statistics of a cache since it was made or cleared, and its limits."""

    hits: int
    misses: int
    size: int
    """The number of entries."""
    capacity: int
    """The maximum number of entries."""
    nbytes: int
    """Their approximate size in the process's memory, in bytes."""
    most_bytes: int
    """Their maximum size, in bytes."""
    seconds: float = 0.0
    """Seconds spent waiting for compilations, including tracing and lowering."""
    quick: int = 0
    """The number of programs that have run in the quick tier."""
    optimised: int = 0
    """How often the optimised tier has taken over from the quick one."""


class Counts:
    """Hits and misses of a cache."""

    __slots__ = ("hits", "misses")

    def __init__(self) -> None:
        self.hits = self.misses = 0


class BoundedCache:
    """A thread-safe LRU cache, limited in entries and in bytes.

    The entry used last is kept even if it alone exceeds the limit. Entries for an op that lives only as long as a
    user's class are in a part of the cache that this op holds, and which has the same limits.
    """

    def __init__(self, capacity: int, most_bytes: int = 1 << 62) -> None:
        # Entry, bytes and key: keys are slow to compare, except with themselves.
        self._entries: OrderedDict[Hashable, tuple[Any, int, Hashable]] = OrderedDict()
        self._lock = threading.Lock()
        self._counts = Counts()
        self._nbytes = 0
        self._parts: weakref.WeakSet[BoundedCache] = weakref.WeakSet()
        self.capacity = capacity
        self.most_bytes = most_bytes

    @classmethod
    def about_structures(cls, capacity: int, most_bytes: int = 1 << 62) -> BoundedCache:
        """A cache of facts about structures of graphs: `nn.executables.clear()` clears it too."""
        cache = cls(capacity, most_bytes)
        caches_about_structures.append(cache)
        return cache

    def part(self, ops: Iterable[Op]) -> BoundedCache:
        """The cache for entries that refer to `ops`: itself, or the part that one of them holds."""
        for op in ops:
            if op.tables is not None:
                part: BoundedCache | None = op.tables.get(self)
                if part is None:
                    part = op.tables.setdefault(self, BoundedCache(self.capacity, self.most_bytes))
                    part._counts = self._counts
                    self._parts.add(part)
                return part
        return self

    def find(self, key: Hashable) -> Any:
        """The entry for `key`, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._counts.misses += 1
                return None
            self._entries.move_to_end(entry[2])
            self._counts.hits += 1
            return entry[0]

    def keep(self, key: Hashable, entry: Any, nbytes: int = 0) -> Any:
        """Store `entry`, unless another thread was faster; returns the stored one."""
        with self._lock:
            if key not in self._entries:
                self._entries[key] = entry, nbytes, key
                self._nbytes += nbytes
                self._shrink()
                return entry
            return self._entries[key][0]

    def get(self, key: Hashable, make: Callable[[], Any], nbytes: int = 0) -> Any:
        """The entry for `key`; if there is none, `make` makes it, and it counts as `nbytes`."""
        entry = self.find(key)
        return self.keep(key, make(), nbytes) if entry is None else entry

    def info(self) -> CacheInfo:
        """Hits, misses, numbers of entries and bytes, and the limits of both."""
        tables = [self, *self._parts]
        size, nbytes = sum([len(t._entries) for t in tables]), sum([t._nbytes for t in tables])
        return CacheInfo(self._counts.hits, self._counts.misses, size, self.capacity, nbytes, self.most_bytes)

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self._entries.clear()
            self._nbytes = self._counts.hits = self._counts.misses = 0
        for part in self._parts:
            part.clear()

    def _shrink(self) -> None:
        while len(self._entries) > self.capacity or (self._nbytes > self.most_bytes and len(self._entries) > 1):
            _, (_, nbytes, _) = self._entries.popitem(last=False)
            self._nbytes -= nbytes


caches_about_structures: list[BoundedCache] = []
"""The caches of facts about structures."""
