"""Values of cells: arrays, and thunks, which are computed when they are read, zeros among them.

Writing to a cell replaces its Value, in one assignment; reading completes the Value and never replaces it. So a reader
cannot undo another thread's write, and an interrupt finds a cell either before or after a change. Several cells are
read or written by one call into C, which neither a signal handler nor another thread can interrupt.

Also output groups: Variables computed by one program, such as the results of one `nn.grad`.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from itertools import repeat
from operator import attrgetter
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .options import BuildOptions, build_options, contained, put_layers
from .placement import several_processes
from .process import check_process
from .spec import Spec, x64_if

if TYPE_CHECKING:
    from .ndarray import NdArray
    from .variable import Variable


def on_host(array: Any) -> np.ndarray[Any, Any]:
    """An array as a NumPy array, without a copy if possible.

    Raises:
        RuntimeError: It is sharded over several processes.
    """
    if is_shared(array) and not array.is_fully_replicated:
        raise RuntimeError(
            f"cannot read an array of shape {array.shape} that is divided over several processes. Call "
            "jax.experimental.multihost_utils.process_allgather(x.data.array, tiled=True) in all of them, or read "
            "a value that each process has whole, such as a sum"
        )
    return np.asarray(array)


def on_device(array: np.ndarray[Any, Any]) -> jax.Array:
    """A NumPy array as a concrete JAX array even while JAX traces, because what holds it outlives the trace."""
    check_process()
    with x64_if(array.dtype.itemsize == 8), jax.ensure_compile_time_eval():
        moved: jax.Array = jax.device_put(array)  # `asarray` would compile for each shape
    return moved


def is_shared(array: Any) -> bool:
    """True if several processes hold parts or copies of an array, so that none may change it alone."""
    return several_processes() and isinstance(array, jax.Array) and not array.is_fully_addressable


class Value:
    """The array in a cell."""

    __slots__ = ("__weakref__", "array", "has_view")

    writing = threading.RLock()
    """Held while a user's value is written, so that `exchange` can tell whether one was."""
    owner: Any = None
    """What holds the array instead, and is read under its `lock`; None for most values."""
    place: int = -1
    """The place of the array among those that the owner holds."""
    held_once: int = next(map(getrefcount, (object(),)))
    """The count of `getrefcount` for an object with a single reference, from an attribute or a tuple."""
    source: Any = None
    """What a thunk is computed from, a Spec for zeros; None once it is, and for values that are no thunks."""
    array: Any
    """A `jax.Array` or a small `np.ndarray`, which nobody writes to unless it has a view; None until it is computed."""
    has_view: bool
    """Whether the array was handed out as a writable NumPy array."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.has_view = False

    @staticmethod
    def of(variables: Iterable[Variable]) -> list[Value]:
        """The Values of several Variables, read one by one, which takes a third of the time."""
        return [(x.cell if (cell := x._data) is None else cell).held for x in variables]

    @staticmethod
    def held_by(cells: Iterable[NdArray]) -> list[Value]:
        """The Values of several cells, read atomically."""
        return list(map(_value_of, cells))

    @staticmethod
    def put_in(cells: Sequence[NdArray], values: Sequence[Value]) -> None:
        """Set the Values of several cells atomically."""
        if len(cells) == 1:
            cells[0].held = values[0]
            return
        before = list(map(_value_of, cells))
        deque(map(setattr, cells, repeat("held"), values), maxlen=0)
        del before  # only now, because releasing values may run code

    @staticmethod
    def all_zero(cells: Iterable[NdArray]) -> bool:
        """True if all of these cells hold zeros that nobody has written or read."""
        return all([cell.held.source.__class__ is Spec for cell in cells])

    @staticmethod
    def read(cells: Iterable[NdArray]) -> list[Any]:
        """The arrays in several cells, read atomically."""
        return Value.arrays_of(Value.held_by(cells))

    @staticmethod
    def write(cells: Sequence[NdArray], arrays: Iterable[Any] | None) -> None:
        """Write arrays, of the cells' shapes and dtypes, to several cells atomically; zeros if there are no arrays."""
        Value.put_in(cells, list(map(Thunk, map(_spec_of, cells)) if arrays is None else map(Value, arrays)))

    @staticmethod
    def arrays_of(values: Sequence[Value]) -> list[Any]:
        """The arrays of several values, read atomically."""
        owners = set(map(_owner_of, values)) - {None}
        if not owners:
            arrays = list(map(_array_of, values))  # before views are asked for, since another thread may get one
            known = None.__class__ not in map(type, arrays) and True not in map(_has_view, values)
            return arrays if known else [v.raw() for v in values]
        if len(owners) == 1:
            (owner,) = owners
            with owner.lock:
                arrays = owner.owned()
                return [v.raw() if (a := arrays[v.place]) is None else a for v in values]
        with ExitStack() as stack:
            for owner in sorted(owners, key=id):  # in a fixed order, so that two readers cannot deadlock
                stack.enter_context(owner.lock)
            return [v.raw() for v in values]

    def raw(self) -> Any:
        """The array to pass to JAX, computed if need be; nobody else can write to it."""
        if self.array is None:
            self.complete()
        return self._kept() if self.has_view else self.array

    def complete(self) -> None:
        """Compute the array."""

    def _kept(self) -> Any:
        """The array that has a view; a copy as long as somebody holds that view."""
        with _lock:
            if getrefcount(self.array) > self.held_once:
                return self.array.copy()
            self.has_view = False
            return self.array

    def writable_view(self) -> np.ndarray[Any, Any]:
        """A writable NumPy array; writing to it changes the value. Read-only if several processes share the array."""
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
        """Replace `array` by `moved`, its copy elsewhere, if it is still held and has no view."""
        with _lock:
            if self.array is array and not self.has_view:
                self.array = moved

    def as_jax(self) -> jax.Array:
        """The array as a `jax.Array`, and stored as one from now on unless it has a view."""
        array = self.raw()
        if isinstance(array, np.ndarray):
            array = on_device(array)
            with _lock:
                if not self.has_view:
                    self.array = array
        result: jax.Array = array
        return result


class Thunk(Value):
    """A value that is computed when it is read.

    Args:
        source: A function that is called with the thunk, and fills it or raises an error; or a Spec, for zeros.
        index: Which result of the source it is, if that has several.
    """

    __slots__ = ("_made", "index", "source")
    _made: Any

    def __init__(self, source: Spec | Callable[[Thunk], None], index: int | None = None) -> None:
        self.array = None
        self.has_view = False
        self.index = index
        self.source: Spec | Callable[[Thunk], None] | None = source

    def complete(self) -> None:
        """Compute the array."""
        source = self.source
        if isinstance(source, Spec):
            self.fill(np.zeros(source.shape, source.dtype))
        elif source is not None:  # otherwise another thread has just filled it
            source(self)

    def fill(self, array: Any) -> None:
        """Store the computed array, if there is none yet, and release the source."""
        with _lock:
            if self.array is None:
                self.array = array
        self.source = None

    @staticmethod
    def fill_together(thunks: Iterable[weakref.ref[Thunk]], arrays: Iterable[Any]) -> None:
        """Fill the thunks that still exist, except where an array is None; their arrays may be replaced later."""
        with _lock:
            for ref, array in zip(thunks, arrays, strict=False):
                thunk = ref()
                if thunk is not None and array is not None:
                    if thunk.array is None:
                        thunk.array = thunk._made = array
                    thunk.source = None

    def replace(self, array: Any) -> None:
        """Store the array, whether or not another was computed before. A value that was written to through a view
        stays."""
        with _lock:
            if not self.has_view or on_host(self._made).tobytes() == self.array.tobytes():
                self.array = self._made = array
                self.has_view = False
        self.source = None


def not_kept(thunk: Thunk) -> None:
    """The source of a gradient that a backward has passed and not kept.

    Raises:
        RuntimeError: Always.
    """
    raise RuntimeError(
        "g: backward() did not keep the gradient of this intermediate value; call backward(retain_grad=True), set "
        "`persistent` to True before backward(), or assign .g yourself"
    )


_lock = threading.RLock()  # reentrant, for signal handlers


_value_of, _owner_of, _spec_of = attrgetter("held"), attrgetter("owner"), attrgetter("_spec")
_array_of, _has_view = attrgetter("array"), attrgetter("has_view")

# ---------------------------------------------------------------- Variables that are computed together


Again = Callable[[], Sequence["Variable"]]
"""Rebuilds the members of a group, in order, from their inputs."""


class OutputGroup:
    """Variables that one program computes, including those that nobody holds any more: the program must not depend on
    garbage collection.

    Args:
        members: The Variables. The group does not keep them alive, since they refer to it.
        again: Rebuilds all of them, or None if that is impossible. It does not refer to anything that depends on them.
    """

    __slots__ = ("_again", "_covered", "_members", "_serials", "run")

    run: Any
    """The plan to compute them, kept here by the engine when the first is read; it refers only to leaves."""

    def __init__(self, members: Iterable[Variable], again: Again | None = None) -> None:
        members = list(members)
        self._members = [weakref.ref(y) for y in members]
        self._serials = [-1 if y.parent is None else y.parent.serial for y in members]
        self._covered: dict[int, object] = {}
        self._again = again
        self.run = None

    def members_at(self, places: Iterable[int]) -> list[Variable | None]:
        """The members at these indices, None for one that is gone or now has another function."""
        members = [self._members[i]() for i in places]
        return [y if y is not None and y._group is self else None for y in members]

    def cover(self, serials: Iterable[int], forward: object) -> None:
        """Record `forward` as the last one to cover the functions with these serial numbers.

        If all members among a function's outputs are gone while another output lives, these do not count as covered.
        """
        self._covered.update(dict.fromkeys(serials, forward))

    def covered_by(self, forward: object) -> list[int]:
        """The indices of the members that this forward was the last to cover; None stands for no forward."""
        return [i for i, serial in enumerate(self._serials) if self._covered.get(serial) is forward]

    def built_again(self) -> Sequence[Variable] | None:
        """The members rebuilt as new Variables, or None if that is impossible."""
        return None if self._again is None else self._again()


def together(variables: Sequence[Variable], again: Again | None = None) -> None:
    """Make Variables, except leaves among them, one group; `again` rebuilds all of them."""
    places = [i for i, y in enumerate(variables) if y.parent is not None]
    if len(places) < 2:
        return
    build, options = None, build_options()
    if again is not None and options.emitting.builder is None:  # a builder refers to all that it has made
        build = functools.partial(_built, again, places, options)
    members = [variables[i] for i in places]
    group = OutputGroup(members, build)
    for y in members:
        y._group = group


def made_together(variables: Sequence[Variable]) -> None:
    """Make the Variables among these that belong to no group one. Their functions, which it keeps, rebuild them."""
    new = [y for y in variables if y._group is None and y.parent is not None]
    computed = [(y.parent, y.index) for y in new]
    together(new, lambda: [f.outputs[k] for f, k in computed])  # type: ignore[union-attr]


@contained
def _built(again: Again, places: Sequence[int], options: BuildOptions) -> list[Variable]:
    """The results of `again` at these indices, under the switches of the original call."""
    put_layers(options.layers)
    members = again()
    return [members[i] for i in places]
