"""Values that an executable updates in place: it takes over the memory of the arrays that it is given.

Those are gone when the call returns, so what it returns must be held before anything can come between. It extends a
list, in C, and the values are read from the list's last entry; whoever reads meanwhile waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from sys import getrefcount
from typing import Any

import jax
import numpy as np

from .spec import wide_types
from .value import Value


class InPlace:
    """What an executable returned last, a tuple, and the lock that it is replaced under."""

    __slots__ = ("_held", "_left", "lock")

    def __init__(self, first: tuple[Any, ...]) -> None:
        self.lock = threading.RLock()  # a signal's handler may come back to it
        self._held = [first]
        self._left = False

    @property
    def results(self) -> tuple[Any, ...]:
        """What was returned last."""
        return self._held[-1]

    @property
    def left(self) -> bool:
        """Whether a value is no longer read from here, since it was lent to somebody who may write to it."""
        return self._left

    def leave(self) -> None:
        """Say that a value is no longer read from here."""
        self._left = True

    def run(self, executable: Callable[..., Any], *arguments: Any) -> None:
        """Replace the results by those of a call of the executable, a function in C. Hold the lock."""
        self._held.extend(map(executable, *[[a] for a in arguments]))
        del self._held[:-1]


class InPlaceValue(Value):
    """One of the values: entry `index` of entry `entry` of the results, or with None all that is in that entry.

    Once it was lent, it is a Value as others are.
    """

    __slots__ = ("_entry", "_index", "_owner")

    def __init__(self, owner: InPlace, entry: int, index: int | None = None) -> None:
        self.array = None
        self.lent = False
        self._owner = owner
        self._entry = entry
        self._index = index

    @property
    def lock(self) -> threading.RLock:
        """Held while the value is replaced."""
        return self._owner.lock

    def raw(self) -> Any:
        """The array; all arrays, in a tuple of the reader's own."""
        with self._owner.lock:
            if self.array is None:
                entry = self._owner.results[self._entry]
                return (*entry,) if self._index is None else entry[self._index]
        return super().raw()

    def again(self) -> InPlaceValue:
        """The same, as it was before it was lent."""
        return InPlaceValue(self._owner, self._entry, self._index)

    def lend(self) -> np.ndarray[Any, Any]:
        """The array as a NumPy array that may be written to, which changes the value."""
        with self._owner.lock:
            if self.array is None:
                copy = np.array(self.raw())
                self._owner.leave()
                self.lent = True
                self.array = copy
        return super().lend()


def raw_together(values: Sequence[Value]) -> list[Any]:
    """The arrays of several values, none of which is replaced between."""
    owners = {id(v.lock): v.lock for v in values if v.__class__ is InPlaceValue}
    if not owners:
        return [v.raw() if v.array is None or v.lent else v.array for v in values]
    with ExitStack() as stack:
        for _, lock in sorted(owners.items()):  # in one order, so that no two wait for each other
            stack.enter_context(lock)
        return [v.raw() for v in values]


def donated(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arrays that may be taken over: each a copy, if somebody else refers to it."""
    counts = list(map(getrefcount, arrays))
    if not counts or max(counts) <= _ALONE:
        return arrays
    return tuple([a if count <= _ALONE else copied(a) for a, count in zip(arrays, counts, strict=True)])


def copied(array: Any) -> jax.Array:
    """A copy, as a JAX array with memory of its own."""
    with wide_types(array.dtype.itemsize == 8):
        return jax.numpy.array(array, copy=True)


def _references_to_held_array() -> int:
    """What is counted in `donated` for an array that only the tuple of results holds."""
    return next(map(getrefcount, (object(),)))


_ALONE = _references_to_held_array()
