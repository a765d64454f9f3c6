"""Structure in, executable out: each structure is compiled once, and kept while it is in use."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax

from ..graph.spec import wide_types
from .lower import in_one, in_pieces
from .pieces import is_long
from .program import Program


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
    """`function` in the settings that its values need; as it is where it needs none."""
    if device is None and not wide:
        return function

    def run(*arrays: Any) -> Any:
        with wide_types(wide):
            if device is None:
                return function(*arrays)
            with jax.default_device(device):
                return function(*jax.device_put(arrays, device))

    return run


MOST_TRUSTED = 500
"""Programs of so many functions XLA compiles, whatever they are."""


def executable_of(program: Program) -> Callable[..., tuple[Any, ...]]:
    """The executable of a program: arrays of the leaves in, arrays of the results out."""

    def make() -> Callable[..., tuple[Any, ...]]:
        if is_long(program):
            function = in_pieces(program)
        elif len(program.steps) > MOST_TRUSTED:
            function = _in_pieces_where_it_fails(program)
        else:
            function = jax.jit(in_one(program))
        return on_device(program.device, program.wide, function)

    result: Callable[..., tuple[Any, ...]] = executables.get(program, make)
    return result


def _in_pieces_where_it_fails(program: Program) -> Callable[..., tuple[Any, ...]]:
    """The program as one executable, or in pieces if XLA cannot compile that."""
    whole = jax.jit(in_one(program))
    function: Callable[..., tuple[Any, ...]] = whole

    def run(*arrays: Any) -> tuple[Any, ...]:
        nonlocal function
        try:
            return function(*arrays)
        except jax.errors.JaxRuntimeError as error:
            if function is not whole or _compiles(whole, arrays):
                raise
            function = in_pieces(program)
            try:
                return function(*arrays)
            except jax.errors.JaxRuntimeError:
                error.add_note(
                    f"nngrad: XLA cannot compile this program of {len(program.steps)} functions, in one piece or in "
                    "several; compute a part of the graph at a time, or put what is repeated into F.jax_function"
                )
                raise error from None

    return run


def _compiles(function: Any, arrays: tuple[Any, ...]) -> bool:
    """Whether it was not the compiler that failed."""
    try:
        function.lower(*arrays).compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
