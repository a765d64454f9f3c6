"""Values that an executable updates in place.

Donated arrays are deleted when the call returns, so its results must be held before anything can intervene. Therefore
extending a list makes the call, in C, and values are read from the list's last entry; readers wait meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import starmap
from operator import call
from sys import getrefcount
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..extend import NdArray, Value, interrupt_safe, on_host, writing, x64_if


class InPlace:
    """The tuple that an executable returned last, and the lock under which it is replaced."""

    __slots__ = ("held", "left", "lock")

    held: list[tuple[Any, ...]]
    """Its last entry is the last result. `map(executable, ...)` extends it."""
    left: bool
    """Whether some value is no longer read from here, because it has a writable host view."""

    def __init__(self, first: tuple[Any, ...]) -> None:
        self.lock = threading.RLock()  # reentrant, for signal handlers
        self.left = False
        self.held = [first]

    def arrays_of(self, values: Sequence[Value]) -> list[Any]:
        """The arrays of values, some of which are read from here. The caller holds the lock."""
        held = self.held[-1]
        return [
            v.raw() if v.has_view
            else v.array if v.array is not None
            else held[v.entry][v.index] if v.__class__ is InPlaceValue
            else v.raw()
            for v in values
        ]


class InPlaceValue(Value):
    """One array of an executable's result: at `index` of entry `entry`.

    Once it has a writable host view, it behaves like any other Value.
    """

    __slots__ = ("entry", "index", "owner")

    def __init__(self, owner: InPlace, entry: int, index: int) -> None:
        self.array = None
        self.has_view = False
        self.owner = owner
        self.entry = entry
        self.index = index

    def raw(self) -> Any:
        """The array."""
        with self.owner.lock:
            if self.array is None:
                return self.owner.held[-1][self.entry][self.index]
        return super().raw()

    def keep_moved(self, array: Any, moved: jax.Array) -> None:
        """As for other values. The updater reads all its values again before the next update."""
        with self.owner.lock:
            if self.array is None and self.owner.held[-1][self.entry][self.index] is array:
                self.owner.left = True
                self.array = moved
            else:
                super().keep_moved(array, moved)

    def again(self) -> InPlaceValue:
        """The same value, as it was before it had a writable host view."""
        return InPlaceValue(self.owner, self.entry, self.index)

    def writable_view(self) -> np.ndarray[Any, Any]:
        """A writable NumPy array; writing to it changes the value. Read-only if several processes share the array."""
        with self.owner.lock:
            if self.array is None:
                array = self.raw()
                if not array.is_fully_addressable:
                    return on_host(array)
                copy = np.array(on_host(array))
                self.owner.left = True
                self.has_view = True
                self.array = copy
        return super().writable_view()


HELD_ONCE: int = next(map(getrefcount, (object(),)))
"""The count of `getrefcount` for an object with a single reference, from an attribute or a tuple."""


def donated(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arrays that may be donated: those that somebody else refers to are copied."""
    if max(map(getrefcount, arrays), default=0) <= HELD_ONCE:
        return arrays
    counts = list(map(getrefcount, arrays))
    return tuple([a if count <= HELD_ONCE else copied(a) for a, count in zip(arrays, counts, strict=True)])


def copied(array: Any) -> jax.Array:
    """A copy, as a JAX array with memory of its own."""
    with x64_if(array.dtype.itemsize == 8):
        if _is_on_host(array):
            copy: jax.Array = jax.device_put(array, may_alias=False)  # this compiles nothing
            return copy
        return jnp.array(array, copy=True)


def copied_together(*groups: tuple[Any, ...]) -> tuple[tuple[Any, ...], ...]:
    """Copies of several groups of arrays; on a device a single program makes them, since compiling one per shape takes
    many times as long."""
    if all([_is_on_host(a) for arrays in groups for a in arrays]):
        return tuple([tuple(map(copied, arrays)) for arrays in groups])
    with x64_if(any([a.dtype.itemsize == 8 for arrays in groups for a in arrays])):
        copies: tuple[tuple[Any, ...], ...] = _copies(groups)
    return copies


def _is_on_host(array: Any) -> bool:
    """Whether the array lies where copying needs no program."""
    if isinstance(array, np.ndarray):
        return True
    return array.is_fully_addressable and all([device.platform == "cpu" for device in array.devices()])


@interrupt_safe
@jax.jit
def _copies(groups: tuple[tuple[Any, ...], ...]) -> Any:
    return jax.tree.map(jnp.copy, groups)


def from_host(array: np.ndarray[Any, Any]) -> jax.Array:
    """A NumPy array as a JAX array with memory of its own."""
    with x64_if(array.dtype.itemsize == 8):
        moved: jax.Array = jax.device_put(array, may_alias=False)
    return moved


def exchange(
    cells: Sequence[NdArray], before: Sequence[Value], after: Sequence[Value], owner: Any, state: Value
) -> bool:
    """Replace the Values `before` of cells by `after`, and `owner._state` by `state`, atomically.

    A cell whose Value is no longer that in `before` was written to, and keeps its own.

    Returns:
        Whether no cell was written to.
    """
    with writing:
        found = _set_together([*cells, owner], [*["held"] * len(cells), "_state"], [*after, state])
        written = [i for i, value in enumerate(before) if found[i] is not value]
        for i in written:
            if cells[i].held is after[i]:
                cells[i].held = found[i]
        return not written


def _set_together(objects: Sequence[Any], names: Sequence[str], values: Sequence[Any]) -> list[Any]:
    """Set an attribute of each object, and return the old values. The call runs no bytecode; the old values are
    released afterwards, since that might."""
    steps = [
        (access, x, name, value)
        for x, name, value in zip(objects, names, values, strict=True)
        for access in (getattr, setattr)
    ]
    return list(starmap(call, steps))[::2]
