"""Slices along axes, and slices at points, which make up `x[key]`."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from ..graph import AnyArray, Array, Variable, as_variable, composite, op
from ..graph.arguments import Ints, Shape, Static, as_ints
from . import axis_maps
from .array import cast, whole_indices
from .axes import told_by_key
from .index_keys import Entry, resolve, window
from .movement import broadcast, stack

# ---------------------------------------------------------------- slices


def _taken(shape: tuple[int, ...], key: tuple[Entry, ...]) -> tuple[int, ...] | None:
    """The shape of `x[key]`, if `key` only has ints."""
    numbers = [n for entry in key if entry is not None for n in (entry if isinstance(entry, tuple) else (entry,))]
    return _shape_of(key) if {int}.issuperset(map(type, numbers)) and len(_places(key, shape)) == len(shape) else None


def _indices_apart(key: tuple[Any, ...]) -> tuple[tuple[Entry, ...], dict[int, jax.Array]]:
    """The key with 0 in place of indices that are arrays, and these by axis."""
    entries = [entry for entry in key if entry is not None]
    apart = {
        axis: lax.convert_element_type(entry, np.int32)
        for axis, entry in enumerate(entries)
        if not isinstance(entry, (int, tuple))
    }
    return tuple([e if e is None or isinstance(e, (int, tuple)) else 0 for e in key]), apart


def _taken_by_index(x: jax.Array, key: tuple[Any, ...]) -> jax.Array:
    key, indices = _indices_apart(key)
    for axis, index in indices.items():
        x = lax.dynamic_slice_in_dim(x, index, 1, axis)
    y: jax.Array = take_slices.forward(x, key)
    return y


def _put_by_index(y: jax.Array, key: tuple[Any, ...], shape: tuple[int, ...]) -> jax.Array:
    key, indices = _indices_apart(key)
    y = put_slices.forward(y, key, tuple([1 if axis in indices else n for axis, n in enumerate(shape)]))
    for axis, index in indices.items():
        whole = lax.full((*y.shape[:axis], shape[axis], *y.shape[axis + 1 :]), 0, y.dtype)
        y = lax.dynamic_update_slice_in_dim(whole, y, index, axis)
    return y


@op(type_name="Slice", linear=True, axes=axis_maps.TAKEN, fuses="moving", slice_keys=told_by_key,
    shape=_taken, by_index=_taken_by_index)
def take_slices(x: AnyArray, /, key: Static) -> jax.Array:
    """A rectangular part of `x`: `x[key]` for a key of ints, slices and None.

    Args:
        key: For each axis an index, which drops it, or a window `(start, count, step)`, where the step may be negative;
            and None for a new axis of size 1.

    Raises:
        ValueError: `key` does not have one entry for each axis, or reaches beyond one.
    """
    places = _places(key, x.shape)
    lows, limits = [p[0] for p in places], [p[0] + (p[1] - 1) * p[2] + 1 if p[1] else p[0] for p in places]
    y = lax.slice(x, lows, limits, [p[2] for p in places])
    return lax.reshape(lax.rev(y, [i for i, p in enumerate(places) if p[3]]), _shape_of(key))


@op(linear=True, axes=axis_maps.PUT, fuses="moving", update_keys=told_by_key,
    by_index=_put_by_index)
def put_slices(y: Array, /, key: Static, shape: Shape) -> jax.Array:
    """Zeros with `y` written where `take_slices` reads: the transpose of `take_slices`.

    Args:
        y: An array in the shape that `take_slices` returns.
        key: As in `take_slices`.

    Raises:
        ValueError: `y` has another shape, or `key` does not fit `shape`.
    """
    places = _places(key, shape)
    if y.shape != _shape_of(key):
        raise ValueError(f"y must have the shape that key selects, {_shape_of(key)}, got {y.shape}")
    y = lax.rev(lax.reshape(y, [p[1] for p in places]), [i for i, p in enumerate(places) if p[3]])
    margins = [
        (low, n - low - ((count - 1) * step + 1 if count else 0), step - 1)
        for (low, count, step, _), n in zip(places, shape, strict=True)
    ]
    return lax.pad(y, y.dtype.type(0), margins)


def _places(key: tuple[Entry, ...], shape: Sequence[int]) -> list[tuple[int, int, int, bool]]:
    """For each axis of `shape`: the lowest position, the count and the distance of positions, and whether they are
    taken in descending order."""
    entries = [(e, 1, 1) if isinstance(e, int) else e for e in key if e is not None]
    if len(entries) != len(shape):
        raise ValueError(f"key must have entries for {len(shape)} axes, got {len(entries)} in {key}")
    places = []
    for axis, ((start, count, step), n) in enumerate(zip(entries, shape, strict=True)):
        last = start + (count - 1) * step
        if step == 0 or count < 0 or (count and not (0 <= start < n and 0 <= last < n)):
            raise ValueError(f"key {key} is out of range for axis {axis} of size {n}")
        low = 0 if count == 0 else last if step < 0 else start
        single = type(count) is int and count <= 1  # a symbolic size is not known to be 1
        places.append((low, count, 1 if single else abs(step), step < 0 and not single))
    return places


def _shape_of(key: tuple[Entry, ...]) -> tuple[int, ...]:
    return tuple(1 if e is None else e[1] for e in key if not isinstance(e, int))


@composite
def slice(
    x: AnyArray, /, start: Static | None = None, stop: Static | None = None, step: Static | None = None
) -> Variable:
    """`x[start:stop:step]` along each axis, as in Python.

    Args:
        start: One number, or None for the default, per axis; fewer stand for the last axes.
        stop: Likewise.
        step: Likewise; it may be negative.

    Raises:
        ValueError: There are more entries than axes, or a step is 0.
    """
    parts = []
    for name, values in (("start", start), ("stop", stop), ("step", step)):
        values = values if isinstance(values, tuple) else (values,) * (values is not None)
        if len(values) > x.ndim:
            raise ValueError(f"{name} must have at most {x.ndim} entries, one for each axis, got {len(values)}")
        parts.append((None,) * (x.ndim - len(values)) + values)
    try:
        key = tuple(window(builtins.slice(*part), n) for part, n in zip(zip(*parts, strict=True), x.shape, strict=True))
    except IndexError as error:
        raise ValueError(f"start={start}, stop={stop}, step={step}: {error}") from None
    return take_slices(x, key=key)


# ---------------------------------------------------------------- points


@op(type_name="GatherNd", linear=True, axes=axis_maps.POINTS_TAKEN)
def take_points(
    x: Array, indices: Array, /, axes: Ints, at: int = 0, outside: float = 0, rows: Static = ()
) -> jax.Array:
    """The slices of `x` at given points.

    Args:
        x: Any array.
        indices: Whole numbers `(*points, k)`: for each point an index into each of the `k` axes. Negative ones
            count from the end.
        axes: The `k` axes of `x` that are indexed.
        at: The position of the axes `points` among the other axes of `x`.
        outside: The value at a point outside of `x`: 0 or NaN, which means the smallest number for integers.
        rows: Pairs of an axis of `x` and one of `points`, of the same size: along these a point lies in its own row of
            `x`. So no rows are sent between devices if both are sharded in the same way.

    Raises:
        ValueError: `indices` does not have one index for each of `axes`, these and those of `rows` are not distinct
            axes of `x`, sizes of `rows` differ, `at` is out of range, or `outside` is neither 0 nor NaN.
    """
    if not (outside == 0 or math.isnan(outside)):
        raise ValueError(f"outside must be 0 or NaN, got {outside}")  # any other number would make it non-linear
    axes = as_ints(axes)
    numbers, window_shape = _point_axes(x.shape, indices, axes, at, rows)
    of_array, of_points = _in_order(rows)
    dimensions = lax.GatherDimensionNumbers(offset_dims=numbers, collapsed_slice_dims=tuple(sorted(axes)),
                                            start_index_map=axes, operand_batching_dims=of_array,
                                            start_indices_batching_dims=of_points)
    fill = None if math.isnan(outside) else x.dtype.type(outside)
    places = wrapped(indices, [x.shape[a] for a in axes])
    if not all([x.shape[a] for a in axes]):  # all is outside, but XLA needs at least one slice
        x = lax.pad(x, lax.full((), 0, x.dtype), [(0, int(a in axes and not n), 0) for a, n in enumerate(x.shape)])
        places = lax.full_like(places, max(x.shape))
    return lax.gather(x, places, dimensions, window_shape, mode=lax.GatherScatterMode.FILL_OR_DROP, fill_value=fill)


@op(type_name="ScatterNd", linear=True, axes=axis_maps.POINTS_PUT)
def put_points(y: Array, indices: Array, /, axes: Ints, shape: Shape, at: int = 0, rows: Static = ()) -> jax.Array:
    """Zeros with the slices `y` added at given points: the transpose of `take_points`.

    Args:
        y: The slices, in the shape that `take_points` returns.
        indices: Integers `(*points, k)`: for each point an index into each of the `k` axes. Negative ones count from
            the end; points out of range are ignored, and slices at the same point add up.
        axes: The `k` axes of the result that are indexed.
        at: The position of the axes `points` among the other axes in `y`.
        rows: Pairs of an axis of the result and one of `points`, as in `take_points`.

    Raises:
        ValueError: `y` has another shape, or the other arguments do not fit together, as in `take_points`.
    """
    axes = as_ints(axes)
    numbers, _ = _point_axes(shape, indices, axes, at, rows)
    of_array, of_points = _in_order(rows)
    rest = [n for i, n in enumerate(shape) if i not in axes and i not in of_array]
    expected = (*rest[:at], *indices.shape[:-1], *rest[at:])
    if y.shape != expected:
        raise ValueError(f"y must have the shape that indices select, {expected}, got {y.shape}")
    if not all(shape):
        return lax.full(shape, 0, y.dtype)
    dimensions = lax.ScatterDimensionNumbers(update_window_dims=numbers, inserted_window_dims=tuple(sorted(axes)),
                                             scatter_dims_to_operand_dims=axes, operand_batching_dims=of_array,
                                             scatter_indices_batching_dims=of_points)
    return lax.scatter_add(lax.full(shape, 0, y.dtype), wrapped(indices, [shape[a] for a in axes]), y, dimensions,
                           mode=lax.GatherScatterMode.FILL_OR_DROP)


def _point_axes(
    shape: Sequence[int], indices: jax.Array, axes: tuple[int, ...], at: int, rows: Sequence[tuple[int, int]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes of the result that come from `shape`, and the shape of one slice."""
    ndim = len(shape)
    if indices.ndim == 0 or indices.shape[-1] != len(axes):
        raise ValueError(f"indices must be of shape (..., {len(axes)}) for axes {axes}, got {indices.shape}")
    points = indices.ndim - 1
    named = (*axes, *[a for a, _ in rows])
    if len(set(named)) != len(named) or any(not 0 <= a < ndim for a in named):
        raise ValueError(f"axes and rows must name distinct axes between 0 and {ndim - 1}, got {axes} and {rows}")
    if len({p for _, p in rows}) != len(rows) or any(not 0 <= p < points for _, p in rows):
        raise ValueError(f"rows must name distinct axes of the points, between 0 and {points - 1}, got {rows}")
    if any(shape[a] != indices.shape[p] for a, p in rows):
        raise ValueError(f"rows must pair axes of equal size, got {rows} for {tuple(shape)} and {indices.shape[:-1]}")
    rest = ndim - len(named)
    if not 0 <= at <= rest:
        raise ValueError(f"at must be between 0 and {rest}, got {at}")
    numbers = (*range(at), *range(at + points, rest + points))
    return numbers, tuple(1 if i in named else n for i, n in enumerate(shape))


def _in_order(rows: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes of the array in ascending order, as XLA takes them, and the corresponding axes of the points."""
    pairs = sorted(rows)
    return tuple([a for a, _ in pairs]), tuple([p for _, p in pairs])


def wrapped(indices: jax.Array, sizes: Sequence[int]) -> jax.Array:
    """`indices`, whose last axis runs over `sizes`, as int32 without negatives."""
    indices = whole_indices(indices)
    size = lax.broadcast_in_dim(np.asarray(sizes, np.int32), indices.shape, (indices.ndim - 1,))
    return lax.select(lax.lt(indices, lax.full_like(indices, 0)), lax.add(indices, size), indices)


def getitem(x: Variable, key: Any) -> Variable:
    """`x[key]` with NumPy's basic and advanced indexing.

    A key may hold ints, slices, None, `...`, arrays or lists of integers, Variables of integers, and arrays or
    lists of bools. Constant indices are checked here; one in a Variable that is out of range gives NaN.

    Raises:
        IndexError: An index is out of range, or not an index; the message names the axis.
    """
    parts = resolve(key, x.shape)
    trivial = not any(e is None or isinstance(e, int) for e in parts.basic) and all(
        e == (0, n, 1) for e, n in zip(parts.basic, x.shape, strict=True)
    )
    if not (parts.axes and trivial):
        x = take_slices(x, key=parts.basic)
    return take_points(x, _points(parts.indices), axes=parts.axes, at=parts.at, outside=math.nan) if parts.axes else x


def _points(indices: tuple[Any, ...]) -> Variable:
    """The index arrays, broadcast together and joined along a new last axis."""
    try:
        shape = np.broadcast_shapes(*[i.shape for i in indices])
    except ValueError:
        shapes = " ".join(str(i.shape) for i in indices)
        raise IndexError(f"index arrays of shapes {shapes} do not broadcast together") from None
    if not any(isinstance(i, Variable) for i in indices):
        return as_variable(np.stack([np.broadcast_to(i, shape) for i in indices], axis=-1))
    parts = [cast(i, np.int32) if isinstance(i, Variable) else as_variable(i) for i in indices]
    return stack(*[broadcast(i, shape=shape) for i in parts], axis=-1)
