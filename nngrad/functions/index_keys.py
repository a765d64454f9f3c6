"""NumPy's indexing keys, resolved against a shape."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..graph import NdArray, Variable

Window = tuple[int, int, int]
"""Start, count and step of the elements taken along an axis."""
Entry = int | Window | None
"""One entry of a resolved basic key: an index, a window, or None for a new axis of size 1."""


class IndexKey(NamedTuple):
    """A resolved key: a basic key, then index arrays into the axes of its result."""

    basic: tuple[Entry, ...]
    axes: tuple[int, ...]
    """Axes of the basic result that arrays pick from; none if the key is basic."""
    indices: tuple[Any, ...]
    """For each of `axes`, an int32 array of nonnegative indices, or a Variable."""
    at: int
    """Where the axes of the index arrays go among the other axes of the result."""


def resolve(key: Any, shape: tuple[int, ...]) -> IndexKey:
    """The `key` of `x[key]`, resolved for an `x` of `shape`. IndexError: an index is out of range or not an index."""
    entries = _with_ellipsis([_entry(k) for k in (key if isinstance(key, tuple) else (key,))], shape)
    advanced = any(isinstance(e, np.ndarray | Variable) for e in entries)
    basic: list[Entry] = []
    axes: list[int] = []
    indices: list[Any] = []
    groups = 0  # Runs of adjacent index arrays: if there are several, their axes come first in the result.
    picking = False
    at = axis = 0
    for e in entries:
        was_picking, picking = picking, not (e is None or e is Ellipsis or isinstance(e, slice))
        if advanced and picking and not was_picking:
            groups += 1
            at = len(basic) - len(axes) if groups == 1 else 0
        if e is None:
            basic.append(None)
        elif e is Ellipsis:
            for _ in range(len(shape) - sum(_consumed(e) for e in entries)):
                basic.append((0, shape[axis], 1))
                axis += 1
        elif isinstance(e, slice):
            basic.append(window(e, shape[axis]))
            axis += 1
        elif isinstance(e, int) and not advanced:
            basic.append(int(_in_range(np.array(e), axis, shape)))
            axis += 1
        elif isinstance(e, np.ndarray) and e.dtype == bool:
            _check_mask(e, axis, shape)
            for places in e.nonzero() if e.ndim else (np.zeros(int(e), np.int32),):
                axes.append(len(basic))
                indices.append(places.astype(np.int32))
                basic.append((0, shape[axis], 1) if e.ndim else None)
                axis += 1 if e.ndim else 0
        else:
            axes.append(len(basic))
            indices.append(e if isinstance(e, Variable) else _in_range(np.asarray(e), axis, shape))
            basic.append((0, shape[axis], 1))
            axis += 1
    return IndexKey(tuple(basic), tuple(axes), tuple(indices), at)


def window(s: slice, size: int) -> Window:
    """Start, count and step of the slice `s` along an axis of `size`."""
    try:
        indices = range(size)[s]
    except ValueError as error:
        raise IndexError(str(error)) from None
    except TypeError:
        raise IndexError(f"slice indices must be ints or None, got {s}") from None
    return (indices.start, len(indices), indices.step) if len(indices) else (0, 0, 1)


def _entry(k: Any) -> Any:
    """One entry of a key: None, Ellipsis, a slice, an int, an array of integers or bools, or a Variable."""
    if k is None or k is Ellipsis or isinstance(k, slice):
        return k
    if isinstance(k, bool | np.bool_):
        return np.array(k)
    if isinstance(k, Variable):
        if k.dtype == bool:
            raise IndexError("a bool Variable cannot be an index: its values would set the shape. Use its .d")
        if k.dtype.kind not in "iu":
            raise IndexError(
                f"an index must have an integer dtype, got a Variable of {k.dtype.name}. The values of a mask would "
                "determine the shape: use F.where(mask, x, 0), or x[mask.d != 0] for its present values"
            )
        return k
    if isinstance(k, NdArray):
        k = k.view
    if hasattr(k, "__index__") and getattr(k, "ndim", 0) == 0:
        return int(k.__index__())
    if isinstance(k, list) or hasattr(k, "__array__"):
        try:
            array = np.asarray(k)
        except ValueError:
            array = np.zeros((), object)
        if array.size == 0 and isinstance(k, list):
            array = array.astype(np.int32)
        if array.dtype.kind in "iub":
            return array
    raise IndexError(f"an index must be an int, slice, None, ..., or an integer or bool array, got {k!r}")


def _consumed(e: Any) -> int:
    """The number of axes of x that an entry consumes; 0 for `...`."""
    if e is None or e is Ellipsis:
        return 0
    return e.ndim if isinstance(e, np.ndarray) and e.dtype == bool else 1


def _with_ellipsis(entries: list[Any], shape: tuple[int, ...]) -> list[Any]:
    """`entries` with exactly one `...`, added at the end if there was none."""
    count = sum(e is Ellipsis for e in entries)
    if count > 1:
        raise IndexError("an index can only have one '...'")
    consumed = sum(_consumed(e) for e in entries)
    if consumed > len(shape):
        raise IndexError(f"too many indices: the array has {len(shape)} axes, but {consumed} were indexed")
    return entries if count else [*entries, Ellipsis]


def _in_range(index: Any, axis: int, shape: tuple[int, ...]) -> Any:
    """`index` as int32 without negatives."""
    n = shape[axis]
    bad = (index < -n) | (index >= n)
    if bad.any():
        first = index.reshape(-1)[bad.reshape(-1)][0]
        raise IndexError(f"index {first} is out of range for axis {axis} of size {n}")
    return np.where(index < 0, index + n, index).astype(np.int32)


def _check_mask(mask: Any, axis: int, shape: tuple[int, ...]) -> None:
    for i, n in enumerate(mask.shape):
        if n != shape[axis + i]:
            raise IndexError(f"a mask of size {n} does not match axis {axis + i} of size {shape[axis + i]}")
