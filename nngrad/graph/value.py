"""What cells hold: values that are there, zeros, and values that are computed when they are read.

Writing to a cell replaces its Value, which is one assignment; reading completes the Value and never replaces it. So a
reader cannot undo what another thread writes, and an interrupt finds a cell as it was or as it is to be. Several cells
are read, and written, in one call into C, which neither a signal's handler nor another thread can come between.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat, starmap
from operator import attrgetter, call
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np

from .process import check_process
from .spec import Spec, x64_if

if TYPE_CHECKING:
    from .ndarray import NdArray


def on_host(array: Any) -> np.ndarray[Any, Any]:
    """An array as one of NumPy, without a copy where there needs to be none.

    Raises:
        RuntimeError: It is divided over several processes.
    """
    if isinstance(array, jax.Array) and not (array.is_fully_addressable or array.is_fully_replicated):
        raise RuntimeError(
            f"an array of shape {array.shape} is divided over several processes, none of which has all of it. Call "
            "jax.experimental.multihost_utils.process_allgather(x.data.array, tiled=True) in all of them, or read "
            "something that is whole, such as a sum"
        )
    return np.asarray(array)


def on_device(array: np.ndarray[Any, Any]) -> jax.Array:
    """An array of NumPy as one of JAX's, with its numbers also where JAX traces a function: what holds it outlives the
    trace."""
    check_process()
    with x64_if(array.dtype.itemsize == 8), jax.ensure_compile_time_eval():
        moved: jax.Array = jax.device_put(array)  # `asarray` compiles something for each shape
    return moved


def is_shared(array: Any) -> bool:
    """Whether several processes have parts or copies of an array, so that none of them may change it by itself."""
    return isinstance(array, jax.Array) and not array.is_fully_addressable


class Value:
    """An array in a cell."""

    __slots__ = ("__weakref__", "array", "has_view")

    array: Any
    """A `jax.Array` or a small `np.ndarray`, which nobody writes to unless it has a view; None until it is there."""
    has_view: bool
    """Whether it has a writable host view: the array was handed out as a NumPy array that may be written to."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.has_view = False

    def raw(self) -> Any:
        """The array for handing to JAX, computed if it is not there; nobody else can write to it."""
        if self.array is None:
            self.complete()
        return self._kept() if self.has_view else self.array

    def complete(self) -> None:
        """Let the array be there."""

    def _kept(self) -> Any:
        """Returns what has a view: a copy, as long as somebody else holds that."""
        with _lock:
            if getrefcount(self.array) > HELD_ONCE:
                return self.array.copy()
            self.has_view = False
            return self.array

    def writable_view(self) -> np.ndarray[Any, Any]:
        """The array as a NumPy array that may be written to, which changes the value; read-only where it is shared by
        several processes."""
        if not self.has_view:
            array = self.raw()
            if is_shared(array):
                return on_host(array)
            with _lock:
                if not self.has_view:
                    self.array = np.array(on_host(self.array))
                    self.has_view = True
        result: np.ndarray[Any, Any] = self.array
        return result

    def keep_moved(self, array: Any, moved: jax.Array) -> None:
        """Let `moved`, the same elsewhere, take the place of `array`, if that is still what is held and has no view."""
        with _lock:
            if self.array is array and not self.has_view:
                self.array = moved

    def as_jax(self) -> jax.Array:
        """The array as a `jax.Array`, which is what it is from now on, unless it has a view."""
        array = self.raw()
        if isinstance(array, np.ndarray):
            array = on_device(array)
            with _lock:
                if not self.has_view:
                    self.array = array
        result: jax.Array = array
        return result


class Zeros(Value):
    """Zeros, which take no memory until they are read."""

    __slots__ = ("spec",)

    def __init__(self, spec: Spec) -> None:
        self.array = None
        self.has_view = False
        self.spec = spec

    def complete(self) -> None:
        """Make the zeros."""
        with _lock:
            if self.array is None:
                self.array = np.zeros(self.spec.shape, self.spec.dtype)


class NotKept(Zeros):
    """In the place of a gradient that a backward has passed and not kept."""

    __slots__ = ()

    def complete(self) -> None:
        """Say so, to whoever reads it."""
        raise RuntimeError(
            "g: backward() has not kept the gradient of this intermediate value; call backward(retain_grad=True), or "
            "set its `persistent` to True before; assigning .g sets it"
        )


class Source(Protocol):
    """What computes deferred values."""

    def run(self) -> None:
        """Compute, and `fill` every value that waits for this."""


class Deferred(Value):
    """A value that its source computes when it is read.

    Args:
        source: What computes it.
        replaceable: Whether a `backward()` may replace what the source computes, unless somebody has written to it.
    """

    __slots__ = ("_made", "_replaceable", "source")

    def __init__(self, source: Source, replaceable: bool = False) -> None:
        self.array = None
        self.has_view = False
        self.source: Source | None = source
        self._replaceable = replaceable
        self._made: Any = None

    def complete(self) -> None:
        """Run the source."""
        source = self.source
        if source is not None:  # else another thread has just filled it
            source.run()

    def fill(self, array: Any) -> None:
        """Take the array that was computed, if none is there yet, and let go of the source."""
        with _lock:
            if self.array is None:
                self.array = array
                if self._replaceable:
                    self._made = array
        self.source = None

    def replace(self, array: Any) -> None:
        """Take the array, whether or not another one was computed before. Where that has a view that was written to, it
        remains."""
        with _lock:
            if not self.has_view or on_host(self._made).tobytes() == self.array.tobytes():
                self.array = self._made = array
                self.has_view = False
        self.source = None


_lock = threading.RLock()  # a signal's handler may come back to it


HELD_ONCE: int = next(map(getrefcount, (object(),)))
"""What `getrefcount` counts for what one attribute, or one entry of a tuple, refers to, and nothing else."""

# ---------------------------------------------------------------- several cells at once

writing = threading.RLock()
"""Held while a user's value is written, so that `replace` sees whether one was."""

_value_of = attrgetter("_value")


def values_of(cells: Iterable[NdArray]) -> list[Value]:
    """The Values of several cells, all of one moment."""
    return list(map(_value_of, cells))


def hold_together(cells: Sequence[NdArray], values: Sequence[Value]) -> None:
    """Let each of several cells hold a Value, all from one moment on."""
    if len(cells) == 1:
        cells[0]._value = values[0]
        return
    before = list(map(_value_of, cells))
    deque(map(setattr, cells, repeat("_value"), values), maxlen=0)
    del before  # only now: letting go of values may run code


def put_together(cells: Sequence[NdArray], arrays: Iterable[Any]) -> None:
    """Write arrays of the cells' shapes and dtypes to several cells, all at one moment."""
    hold_together(cells, list(map(Value, arrays)))


def replace(cells: Sequence[NdArray], before: Sequence[Value], arrays: Iterable[Any], owner: Any, state: Value) -> None:
    """Write what was computed from the Values `before` to the cells, and `state` to `owner._state`, all at one
    moment. A cell that was written to since keeps what it has: that came later."""
    exchange(cells, before, list(map(Value, arrays)), owner, state)


def exchange(
    cells: Sequence[NdArray], before: Sequence[Value], after: Sequence[Value], owner: Any, state: Value
) -> bool:
    """Let cells hold the Values `after` in place of `before`, and `owner._state` be `state`, all at one moment.

    A cell that holds another Value than that in `before` was written to, and keeps it.

    Returns:
        Whether none was.
    """
    with writing:
        found = _set_together([*cells, owner], [*["_value"] * len(cells), "_state"], [*after, state])
        written = [i for i, value in enumerate(before) if found[i] is not value]
        for i in written:
            if cells[i]._value is after[i]:
                cells[i]._value = found[i]
        return not written


def _set_together(objects: Sequence[Any], names: Sequence[str], values: Sequence[Any]) -> list[Any]:
    """Set an attribute of each object, and return what they were. The call runs no bytecode; what was there is let go
    of afterwards, since that might."""
    steps = [
        (access, x, name, value)
        for x, name, value in zip(objects, names, values, strict=True)
        for access in (getattr, setattr)
    ]
    return list(starmap(call, steps))[::2]
