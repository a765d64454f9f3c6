"""Selecting and placing elements: where, gather, scatter and sorting."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..graph import AnyShape, Array, Function, Variable, WithAxis, as_variable, composite, op
from ..graph.arguments import Ints, Shape, Target, as_ints
from ..graph.axes import AxisMap, Places
from ..graph.leaf import common_floating
from . import array, control, elementwise, movement, slicing
from .arithmetic import alike
from .axes import axis_of, mixes
from .comparison import holds
from .conditions import common_shape, condition_axes
from .reduction import values_or_indices

# ---------------------------------------------------------------- masks


def _selected(f: Function) -> tuple[Places, ...]:
    """As of broadcast inputs, but a condition may be aligned with the first axes."""
    ndim = f.specs[0].ndim
    axes = condition_axes(*[x.shape for x in f.inputs])
    return (tuple([ndim + a for a in axes]), *[tuple(range(ndim - x.ndim, ndim)) for x in f.inputs[1:]])


@op(
    elementwise=True, diagonal=True, broadcasts=True, selects=True, linear=(1, 2), axes=AxisMap(places=_selected)
)
def where(condition: Array, x_true: AnyShape, x_false: Array, /) -> jax.Array:
    """`x_true` where `condition` is not 0, else `x_false`.

    Where a value is not taken its gradient is 0, even if the incoming one is infinite.

    Args:
        condition: Of the shape of the first axes of the result, so that each element selects whole slices; or of a
            shape that broadcasts with the result as in NumPy.
        x_false: Any shape that broadcasts with that of `x_true`; the result has their common dtype.
    """
    x_true, x_false = alike(x_true, x_false)
    axes = condition_axes(condition.shape, x_true.shape, x_false.shape)
    shape = jnp.broadcast_shapes(x_true.shape, x_false.shape)
    if axes and axes[-1] == -1:
        shape = common_shape((shape, condition.shape), "condition and the values")
    condition = lax.broadcast_in_dim(holds(condition), shape, tuple([len(shape) + a for a in axes]))
    return lax.select(condition, jnp.broadcast_to(x_true, shape), jnp.broadcast_to(x_false, shape))


# ---------------------------------------------------------------- points


@op
def latest_points(indices: Array, /, shape: Shape) -> jax.Array:
    """True for values that survive where several are put at the same point: the last of these.

    Args:
        indices: Whole numbers `(*points, k)`: an index into each of the `k` sizes; negative ones count from
            the end. At points out of range it is false.
        shape: The sizes.

    Returns:
        bool `(*points,)`.

    Raises:
        TypeError: The last axis of `indices` does not have one index for each size.
    """
    points = indices.shape[:-1]
    turn = lax.reshape(lax.iota(jnp.int32, math.prod(points)), points)
    places = slicing.wrapped(indices, shape)
    k = tuple(range(len(shape)))
    put = lax.ScatterDimensionNumbers(update_window_dims=(), inserted_window_dims=k, scatter_dims_to_operand_dims=k)
    last = lax.scatter_max(lax.full(shape, -1, jnp.int32), places, turn, put, mode=lax.GatherScatterMode.FILL_OR_DROP)
    take = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=k, start_index_map=k)
    mode = lax.GatherScatterMode.FILL_OR_DROP
    return lax.eq(lax.gather(last, places, take, (1,) * len(shape), mode=mode, fill_value=-1), turn)


@op
def extreme_points(x: Array, y: Array, indices: Array, /, axes: Ints, largest: bool = True) -> jax.Array:
    """At given points, the maximum of the element there and the values put there; ties share the gradient.

    Args:
        x: The original array.
        y: The slices that are put: the axes of the points, then those of `x` that are not indexed. Its dtype is that of
            `x`.
        indices: Whole numbers `(*points, k)`: for each point an index into each of the `k` axes. Negative ones count
            from the end; points out of range are ignored.
        axes: The `k` axes of `x` that are indexed.
        largest: False for the minimum.
    """
    axes = as_ints(axes)
    points = indices.ndim - 1
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(points, points + x.ndim - len(axes))), inserted_window_dims=tuple(sorted(axes)),
        scatter_dims_to_operand_dims=axes,
    )  # fmt: skip
    places = slicing.wrapped(indices, [x.shape[a] for a in axes])
    put = lax.scatter_max if largest else lax.scatter_min
    return put(x, places, y, numbers, mode=lax.GatherScatterMode.FILL_OR_DROP)


@composite
def gather(
    x: Array, Indices: Array, /, axis: int | None = None, batch_dims: int | None = None  # noqa: N803
) -> Variable:
    """The slices of `x` at `Indices` along an axis.

    Args:
        x: Any array.
        Indices: Whole numbers, of any shape; negative ones count from the end. One that is out of range, or not whole,
            gives NaN.
        axis: The axis; by default the first after the batch axes.
        batch_dims: The number of leading axes that `x` and `Indices` share; by default none.

    Returns:
        `(*x.shape[:axis], *Indices.shape[batch_dims:], *x.shape[axis + 1:])`.
    """
    batch = batch_dims or 0
    if not 0 <= batch <= (Indices.ndim if Indices.ndim < x.ndim else x.ndim - 1):
        raise ValueError(f"batch_dims {batch} is out of range for x {x.shape} and Indices {Indices.shape}")
    axis = batch if axis is None else axis_of(axis, x.ndim, "axis")
    if axis < batch or x.shape[:batch] != Indices.shape[:batch]:
        raise ValueError(f"x and Indices must have the same first {batch} axes, all before axis {axis}, got shapes "
                         f"{x.shape} and {Indices.shape}")
    rows = tuple([(a, a) for a in range(batch)])
    points = movement.reshape(Indices, shape=(*Indices.shape, 1))
    if not batch:
        return slicing.take_points(x, points, axes=(axis,), at=axis, outside=math.nan)
    y = slicing.take_points(x, points, axes=(axis,), outside=math.nan, rows=rows)
    if axis == batch:
        return y
    # The axes of the points are adjacent; the axes of x between the batch and the axis move back before them.
    between = tuple(range(Indices.ndim, Indices.ndim + axis - batch))
    lead = range(batch)
    return movement.transpose(y, axes=(*lead, *between, *range(batch, Indices.ndim), *range(between[-1] + 1, y.ndim)))


@composite
def gather_nd(data: Array, indices: Array, /) -> Variable:
    """The slices of `data` at the points `indices[:, i, j, ...]`.

    Args:
        data: Any array.
        indices: Whole numbers `(k, *points)`: an index into each of the first `k` axes; negative ones count from the
            end, and one out of range gives NaN.

    Returns:
        `(*points, *data.shape[k:])`.

    Raises:
        ValueError: `k` is more than the number of axes of `data`.
    """
    points, axes = _points_last(indices, data.ndim)
    return slicing.take_points(data, points, axes=axes, outside=math.nan)


@composite
def scatter_nd(
    data: Array, indices: Array, /, shape: Shape | None = None, out: Target | None = None, add: bool = False
) -> Variable:
    """An array with the slices `data` at the points `indices[:, i, j, ...]`.

    Args:
        data: `(*points, *shape[k:])`.
        indices: Whole numbers `(k, *points)`: an index into each of the first `k` axes; negative ones count from the
            end, and points out of range are ignored.
        shape: The result's shape, with zeros at all other points; None for that of `out`.
        out: A Variable with the values at all other points. If it is a leaf, `forward()` writes the result to it.
        add: Whether the slices are added to the values there; else they replace them, and the last one at a point wins.

    Raises:
        ValueError: Neither `shape` nor `out` is given, or the shapes do not fit.
    """
    base = None if out is None else as_variable(out, "out", "scatter_nd", common_floating([data]))
    if base is not None:
        if shape not in (None, base.shape):
            raise ValueError(f"shape must be that of out, {base.shape}, got {shape}")
        shape = base.shape
    elif shape is None:
        raise ValueError("shape is required without out")
    points, axes = _points_last(indices, len(shape))
    expected = (*points.shape[:-1], *shape[len(axes) :])
    if data.shape != expected:
        raise ValueError(f"data must be of shape {expected}, got {data.shape}")
    if add:
        y = slicing.put_points(data, points, axes=axes, shape=shape)
        if base is None:
            return y
        y = base + y
    else:
        last = latest_points(points, shape=shape[: len(axes)])
        y = slicing.put_points(where(last, data, array.zeros_like(data)), points, axes=axes, shape=shape)
        if base is None:
            return y
        written = slicing.put_points(array.cast(last, "int32"), points, axes=axes, shape=shape[: len(axes)])
        y = where(written, y, base)
    return control.with_updates(y, {base: y}) if base.parent is None else y


@composite
def scatter_add(x0: Array, indices: Array, x1: Array, /, axis: int | None = None) -> Variable:
    """`x0` with the elements of `x1` added along an axis: for axis 0 of a matrix, `y[indices[i, j], j] += x1[i, j]`.

    Args:
        x0: The array to add to; along other axes it may be larger than `indices`, and the rest stays unchanged.
        indices: Whole numbers, with as many axes as `x0`; negative ones count from the end, and those out of range are
            ignored.
        x1: The values to add, with as many axes as `x0`; if it is larger than `indices`, the rest is ignored.
        axis: The axis of `x0` that is indexed; None for the first.
    """
    if not x0.ndim == indices.ndim == x1.ndim:
        shapes = f"{x0.shape}, {indices.shape} and {x1.shape}"
        raise ValueError(f"x0, indices and x1 must have equally many axes, got shapes {shapes}")
    axis = axis_of(0 if axis is None else axis, x0.ndim, "axis")
    for i, n in enumerate(indices.shape):
        if n > x1.shape[i] or (i != axis and n > x0.shape[i]):
            raise ValueError(f"indices must not exceed x1 {x1.shape}, nor x0 {x0.shape} except along axis {axis}, got "
                             f"shape {indices.shape}")
    if x1.shape != indices.shape:
        x1 = slicing.take_slices(x1, key=tuple((0, n, 1) for n in indices.shape))
    covered = (*indices.shape[:axis], x0.shape[axis], *indices.shape[axis + 1 :])
    points, rows = along(indices, axis)
    added = slicing.put_points(x1, points, axes=(axis,), shape=covered, rows=rows)
    if covered != x0.shape:
        added = slicing.put_slices(added, key=tuple([(0, n, 1) for n in covered]), shape=x0.shape)
    y: Variable = x0 + added
    return y


@composite
def take_along_axis(x: Array, indices: Array, /, axis: int = -1) -> Variable:
    """The elements of `x` at `indices` along an axis, row by row: `y[i, j] = x[i, indices[i, j]]`.

    Args:
        x: Any array.
        indices: Whole numbers, with as many axes as `x`; except along the axis, sizes are those of `x`, or 1 on either
            side. Negative ones count from the end. One that is out of range, or not whole, gives NaN.
    """
    axis = axis_of(axis, x.ndim, "axis")
    along_axis, others = x.shape[axis : axis + 1], (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    if indices.ndim != x.ndim:
        raise ValueError(f"indices must have as many axes as x {x.shape}, got shape {indices.shape}")
    full = common_shape((others, indices.shape), f"except along axis {axis}, x and indices")
    if (rows := (*full[:axis], *along_axis, *full[axis + 1 :])) != x.shape:
        x = movement.broadcast(x, shape=rows)
    if full != indices.shape:
        indices = movement.broadcast(indices, shape=full)
    points, rows = along(indices, axis)
    return slicing.take_points(x, points, axes=(axis,), outside=math.nan, rows=rows)


def along(indices: Variable, axis: int) -> tuple[Variable, tuple[tuple[int, int], ...]]:
    """The points that `indices` name along `axis`, and the `rows` that place them along all other axes."""
    points = movement.reshape(indices, shape=(*indices.shape, 1))
    return points, tuple([(i, i) for i in range(indices.ndim) if i != axis])


def _points_last(indices: Variable, ndim: int) -> tuple[Variable, tuple[int, ...]]:
    """Indices with the coordinates moved from the first axis to the last; and the axes that they index."""
    if indices.ndim == 0 or indices.shape[0] > ndim:
        raise ValueError(f"indices must have size {ndim} or less along axis 0, got shape {indices.shape}")
    return movement.transpose(indices, axes=(*range(1, indices.ndim), 0)), tuple(range(indices.shape[0]))


# ---------------------------------------------------------------- sorting


@op(type_name="Sort", axes=mixes("axis"))
def sort_values(x: WithAxis, /, axis: int = -1, reverse: bool = False) -> jax.Array:
    """The elements in ascending order along an axis. NaN sorts last.

    Args:
        reverse: Whether the order is descending.
    """
    return _sorted(x, axis, reverse)[0]


@op(axes=mixes("axis"))
def argsort(x: Array, /, axis: int = -1, reverse: bool = False) -> jax.Array:
    """The indices, as int32, that sort `x` in ascending order along an axis. The sort is stable.

    Args:
        x: Any shape of at least one axis; NaN counts as largest.
        reverse: Whether the order is descending.
    """
    return _sorted(x, axis, reverse)[1]


def _sorted(x: jax.Array, axis: int, reverse: bool) -> tuple[jax.Array, jax.Array]:
    """Sorted values and their indices: one sort for both, so that XLA merges the two ops."""
    a = axis_of(axis, x.ndim)
    index = lax.broadcasted_iota(jnp.int32, x.shape, a)
    if reverse:  # reversed before and after, so that equal elements keep their order
        x, index = lax.rev(x, (a,)), lax.rev(index, (a,))
    y, order = lax.sort((x, index), dimension=a, num_keys=1)
    return (lax.rev(y, (a,)), lax.rev(order, (a,))) if reverse else (y, order)


@composite
def sort(
    x: Array, /, axis: int = -1, reverse: bool = False, with_index: bool = False, only_index: bool = False
) -> Variable | Any:
    """The elements in ascending order along an axis. NaN sorts last.

    Args:
        with_index: Whether the indices of the elements are returned too, as in `argsort`.
        only_index: Whether only the indices are returned.
        ...: As in `sort_values`.

    Returns:
        The elements, or the pair of them and their indices, or the indices.
    """
    return values_or_indices(sort_values, argsort, with_index, only_index, x, axis, reverse)


def batch_of_samples(shape: Shape, base_axis: int, k: int) -> Shape:
    """The batch axes of an array whose samples begin at `base_axis` and have at least `k` elements."""
    base = base_axis + len(shape) if base_axis < 0 else base_axis
    if not 0 <= base <= len(shape):
        raise ValueError(f"base_axis {base_axis} is out of range for an array of {len(shape)} axes")
    size = math.prod(shape[base:])
    if not 1 <= k <= size:
        raise ValueError(f"k must be between 1 and the {size} elements of a sample, got {k}")
    return shape[:base]


@composite
def top_k_data(
    x: Array, /, k: int, abs: bool = False, reduce: bool = True, base_axis: int = 1, largest: bool = True,
    with_index: bool = False,
) -> Variable | Any:
    """The `k` largest elements of each sample.

    Args:
        x: `(*batch, *sample)`, where the sample begins at `base_axis`.
        k: The number of elements.
        abs: Whether elements are compared by magnitude.
        reduce: Whether the result is `(*batch, k)`, largest first. Else it has the shape of `x`, with 0 for all other
            elements.
        largest: False for the smallest.
        with_index: Whether the elements' indices `(*batch, k)` in the flattened sample are returned too.

    Returns:
        The elements, or the pair of them and their indices.

    Raises:
        ValueError: A sample has fewer than `k` elements, `k` is below 1, or `base_axis` is out of range.
    """
    batch = batch_of_samples(x.shape, base_axis, k)
    base = len(batch)
    flat = movement.reshape(x, shape=(*batch, math.prod(x.shape[base:])))
    order = argsort(elementwise.abs(flat) if abs else flat, reverse=largest)
    index = slicing.take_slices(order, key=(*[(0, n, 1) for n in batch], (0, k, 1)))
    points, rows = along(index, base)
    y = slicing.take_points(flat, points, axes=(base,), rows=rows)
    if not reduce:
        y = slicing.put_points(y, points, axes=(base,), shape=flat.shape, rows=rows)
        y = movement.reshape(y, shape=x.shape)
    return (y, index) if with_index else y
