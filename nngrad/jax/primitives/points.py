"""Gather, scatter and dynamic slices: windows of an array at computed indices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import lax

from ... import functions as F
from ...extend import NdArray, Variable, leaf_of
from ...functions.array import in_dtype
from ..values import KnownArray
from .movement import reshaped_once, sliced, transposed_once
from .registry import JaxprEquation, opens, require, variable

_OUTSIDE = np.iinfo(np.int32).max
"""An index outside every axis."""

HostArray = np.ndarray[Any, Any]

_CLIP = lax.GatherScatterMode.CLIP
_FILL = lax.GatherScatterMode.FILL_OR_DROP


def points_of_windows(starts: Any, shape: list[int], sizes: list[int], mode: Any) -> Variable:
    """The indices of all elements of windows: `(*points, *sizes, k)`, for `k` indexed axes.

    Args:
        starts: Where each window begins, `(*points, k)`.
        shape: The sizes of the indexed axes.
        sizes: The sizes of the windows along them.
        mode: Whether windows that lie partly or wholly outside are moved inside or dropped.
    """
    most = np.asarray([n - s for n, s in zip(shape, sizes, strict=True)], np.int64)
    if isinstance(starts, KnownArray):
        return _leaf(_places_known(np.asarray(starts.array).astype(np.int64), most, sizes, mode).astype(np.int32))
    points = in_dtype(starts, np.int32)
    limits = _leaf(np.broadcast_to(most.astype(np.int32), points.shape))
    if mode == _CLIP:
        points = F.minimum2(F.maximum_scalar(points, val=0.0), limits)
    lead, windows = points.shape[:-1], [1] * len(sizes)
    places = reshaped_once(points, (*lead, *windows, len(sizes)))
    if any([s != 1 for s in sizes]):
        places = F.add2(places, _leaf(_offsets(sizes).astype(np.int32)))
    if mode == _FILL:
        # Windows are kept or dropped as a whole: one that begins outside is dropped, even if it reaches inside.
        outside = F.logical_or(F.less_scalar(points, val=0.0), F.greater(points, limits))
        lost = reshaped_once(F.amax(outside, axis=(outside.ndim - 1,)), (*lead, *windows, 1))
        places = F.where(lost, _leaf(np.full(places.shape, _OUTSIDE, np.int32)), places)
    return places


def _places_known(starts: HostArray, most: HostArray, sizes: list[int], mode: Any) -> HostArray:
    """The indices of windows with known starts."""
    if mode == _CLIP:
        starts = np.clip(starts, 0, most)
    windows = [1] * len(sizes)
    places: HostArray = starts.reshape(*starts.shape[:-1], *windows, len(sizes)) + _offsets(sizes)
    outside = ((starts < 0) | (starts > most)).any(-1)
    if mode != _CLIP and outside.any():
        places = np.where(outside.reshape(*outside.shape, *windows, 1), _OUTSIDE, places)
    return places


def _offsets(sizes: list[int]) -> HostArray:
    """The indices within a window, `(*sizes, k)`."""
    return np.stack(np.meshgrid(*[np.arange(s) for s in sizes], indexing="ij"), -1) if sizes else np.zeros((0,), int)


def _leaf(array: HostArray) -> Variable:
    return leaf_of(NdArray.from_numpy_array(np.ascontiguousarray(array)))


def _with_batch(points: Variable, axes: tuple[int, ...]) -> Variable:
    """Prepend to each point its positions along `axes`, which are among the leading ones."""
    positions = [
        np.broadcast_to(
            np.arange(points.shape[a]).reshape([-1 if i == a else 1 for i in range(points.ndim - 1)]),
            points.shape[:-1],
        )
        for a in axes
    ]
    return F.concatenate(_leaf(np.stack(positions, -1).astype(np.int32)), points, axis=-1)


@opens("gather", takes_known=True)
def _gather(equation: JaxprEquation, x: Any, indices: Any) -> Variable:
    x = variable(x)
    p, numbers = equation.params, equation.params["dimension_numbers"]
    indexed = tuple(map(int, numbers.start_index_map))
    batch, their_batch = tuple(numbers.operand_batching_dims), tuple(numbers.start_indices_batching_dims)
    removed = tuple(numbers.collapsed_slice_dims)
    sizes = list(map(int, p["slice_sizes"]))
    x = sliced(x, [
        (0, sizes[a] if a not in (*indexed, *batch) else n, 1) for a, n in enumerate(x.shape)
    ])  # fmt: skip
    outside = _fill_of(p["fill_value"], x) if p["mode"] == _FILL else 0.0
    windows = [sizes[a] for a in indexed]
    # XLA clips indices that are promised to be inside, like all others.
    mode = _FILL if p["mode"] == _FILL else _CLIP
    points = points_of_windows(indices, [x.shape[a] for a in indexed], windows, mode)
    lead = len(equation.inputs[1].shape) - 1
    if batch:
        points = _with_batch(points, their_batch)
    # Axes of the taken elements: the points, the windows along each indexed axis, and the other axes of x in order.
    rest = [a for a in range(x.ndim) if a not in (*indexed, *batch)]
    y = F.take_points(x, points, axes=(*batch, *indexed), at=0, outside=outside)
    along = {a: lead + i for i, a in enumerate(indexed)} | {a: lead + len(indexed) + i for i, a in enumerate(rest)}
    remaining = [along[a] for a in range(x.ndim) if a not in (*removed, *batch)]
    dropped = [along[a] for a in removed]
    offset = list(numbers.offset_dims)
    points_at = [i for i in range(len(equation.shape)) if i not in offset]
    source = dict(zip(offset, remaining, strict=True)) | dict(zip(points_at, range(lead), strict=True))
    order = [source[i] for i in range(len(equation.shape))]
    return reshaped_once(transposed_once(y, (*order, *dropped)), equation.shape)


def _fill_of(fill: Any, x: Variable) -> float:
    if fill is None:
        require(
            x.dtype.kind in "fV" or x.spec.differentiable or x.dtype.kind == "i" or x.dtype == bool,
            "it fills unsigned integers out of bounds",
        )
        return 0.0 if x.dtype == bool else math.nan
    require(fill == 0 or fill != fill, f"it fills elements out of bounds by {fill}")
    return 0.0 if fill == 0 else math.nan


def _put(
    equation: JaxprEquation, shape: tuple[int, ...], indices: Any, updates: Variable
) -> tuple[Variable, Variable, tuple[int, ...]]:
    """The updates with the points' axes first, the points, and the axes that they index."""
    p, numbers = equation.params, equation.params["dimension_numbers"]
    indexed = tuple(map(int, numbers.scatter_dims_to_operand_dims))
    batch, their_batch = tuple(numbers.operand_batching_dims), tuple(numbers.scatter_indices_batching_dims)
    inserted = tuple(numbers.inserted_window_dims)
    window_axes = list(numbers.update_window_dims)
    in_window = [a for a in range(len(shape)) if a not in (*inserted, *batch)]
    size = {a: updates.shape[i] for a, i in zip(in_window, window_axes, strict=True)}
    rest = [a for a in in_window if a not in indexed]
    require(all([size[a] == shape[a] for a in rest]), "it takes parts of slices")
    lead = [i for i in range(updates.ndim) if i not in window_axes]
    of = dict(zip(in_window, window_axes, strict=True))
    order = [*lead, *[of[a] for a in indexed if a in of], *[of[a] for a in rest]]
    windows = [size.get(a, 1) for a in indexed]
    u = transposed_once(updates, tuple(order))
    u = reshaped_once(u, (*[updates.shape[i] for i in lead], *windows, *[shape[a] for a in rest]))
    points = points_of_windows(indices, [shape[a] for a in indexed], windows, p["mode"])
    if batch:
        points = _with_batch(points, their_batch)
    return u, points, (*batch, *indexed)


@opens("scatter-add", "scatter-sub", takes_known=True)
def _scatter_add(equation: JaxprEquation, x: Any, indices: Any, updates: Any) -> Variable:
    x, updates = variable(x), variable(updates)
    if _is_at_all(x, indices, updates):
        put = updates
    else:
        u, points, axes = _put(equation, x.shape, indices, updates)
        put = F.put_points(u, points, axes=axes, shape=x.shape, at=0)
    if equation.name == "scatter-sub":
        return F.sub2(x, put)
    is_zero = x.parent is not None and x.parent.op is F.constant and x.parent.args["val"] == 0
    return put if is_zero else F.add2(x, put)


def _is_at_all(x: Variable, indices: Any, updates: Variable) -> bool:
    """True if the updates cover the whole array, as in `x.at[...]`: a single index of no axes."""
    return tuple(indices.shape) == (0,) and updates.shape == x.shape


@opens("scatter", takes_known=True)
def _scatter(equation: JaxprEquation, x: Any, indices: Any, updates: Any) -> Variable:
    # `lax.scatter_apply` is also this primitive, with another function of the update.
    require(equation.params["update_jaxpr"] is None, "it updates by a function of the old values")
    x, new = variable(x), variable(updates)
    if _is_at_all(x, indices, new):
        return new
    u, points, axes = _put(equation, x.shape, indices, new)
    return _written(x, u, points, axes, bool(equation.params["unique_indices"]))


@opens("scatter-min", "scatter-max", takes_known=True)
def _scatter_extremum(equation: JaxprEquation, x: Any, indices: Any, updates: Any) -> Variable:
    x, updates = variable(x), variable(updates)
    u, points, axes = _put(equation, x.shape, indices, updates)
    return F.extreme_points(x, u, points, axes=axes, largest="max" in equation.name)


@opens("scatter-mul", takes_known=True)
def _scatter_mul(equation: JaxprEquation, x: Any, indices: Any, updates: Any) -> Variable:
    x, updates = variable(x), variable(updates)
    u, points, axes = _put(equation, x.shape, indices, updates)
    indexed, count = tuple([x.shape[a] for a in axes]), math.prod(points.shape[:-1])
    if equation.params["unique_indices"] or count <= 1:
        return F.mul2(x, _written(F.ones_like(x), u, points, axes, True))
    strides = [math.prod(indexed[i + 1 :]) for i in range(len(indexed))]
    outside = F.amax(F.equal(points, _leaf(np.asarray(_OUTSIDE, np.int32))), axis=-1)
    places = F.sum(F.mul2(points, _leaf(np.asarray(strides, np.int32))), axis=-1)
    places = reshaped_once(F.where(outside, F.sub2(F.zeros_like(places), F.ones_like(places)), places), (count,))
    rest = u.shape[points.ndim - 1 :]
    products = F.segment_prod(reshaped_once(u, (count, *rest)), places, count=math.prod(indexed))
    return F.mul2(x, _indexed_back(reshaped_once(products, (*indexed, *rest)), axes))


def _written(x: Variable, u: Variable, points: Variable, axes: tuple[int, ...], unique: bool) -> Variable:
    """`x` with slices overwritten; of several at one point, the last one wins."""
    indexed = tuple([x.shape[a] for a in axes])
    lead = points.ndim - 1
    if unique:
        last = _leaf(np.ones(points.shape[:-1], np.int32))
    else:
        last = F.latest_points(points, shape=indexed)
        u = F.where(reshaped_once(last, (*points.shape[:-1], *[1] * (u.ndim - lead))), u, F.zeros_like(u))
        last = F.cast(last, dtype=np.int32)
    there = F.put_points(last, points, axes=tuple(range(len(axes))), shape=indexed, at=0)
    there = _indexed_back(reshaped_once(there, (*indexed, *[1] * (x.ndim - len(axes)))), axes)
    return F.where(there, F.put_points(u, points, axes=axes, shape=x.shape, at=0), x)


def _indexed_back(y: Variable, axes: tuple[int, ...]) -> Variable:
    """`y`, whose first axes are the indexed `axes`, with all axes in order."""
    order = [*axes, *[a for a in range(y.ndim) if a not in axes]]
    return transposed_once(y, tuple([order.index(a) for a in range(y.ndim)]))


@opens("dynamic_slice", takes_known=True)
def _dynamic_slice(equation: JaxprEquation, operand: Any, *starts: Any) -> Variable:
    x = variable(operand)
    sizes = list(map(int, equation.params["slice_sizes"]))
    for a, (start, n) in enumerate(zip(starts, sizes, strict=True)):
        if n == x.shape[a]:
            continue
        if isinstance(start, KnownArray):
            at = min(max(int(np.asarray(start.array)), 0), x.shape[a] - n)
            x = sliced(x, [(at, n, 1) if i == a else (0, m, 1) for i, m in enumerate(x.shape)])
            continue
        points = points_of_windows(reshaped_once(in_dtype(start, np.int32), (1,)), [x.shape[a]], [n], _CLIP)
        x = F.take_points(x, points, axes=(a,), at=a)
    return x


@opens("dynamic_update_slice", takes_known=True)
def _dynamic_update_slice(equation: JaxprEquation, operand: Any, added: Any, *starts: Any) -> Variable:
    x, update = variable(operand), variable(added)
    if all([isinstance(start, KnownArray) for start in starts]):
        key = []
        for start, n, m in zip(starts, update.shape, x.shape, strict=True):
            key.append((min(max(int(np.asarray(start.array)), 0), m - n), n, 1))
        if update.shape == x.shape:
            return update
        mask = np.zeros(x.shape, bool)
        mask[tuple([slice(at, at + n) for at, n, _ in key])] = True
        return F.where(_leaf(mask), F.put_slices(update, key=tuple(key), shape=x.shape), x)
    moving = [a for a, n in enumerate(update.shape) if n != x.shape[a]]
    if not moving:
        return update
    moving_starts = [in_dtype(variable(starts[a]), np.int32) for a in moving]
    at = F.stack(*moving_starts, axis=0) if len(moving_starts) > 1 else reshaped_once(moving_starts[0], (1,))
    points = points_of_windows(at, [x.shape[a] for a in moving], [update.shape[a] for a in moving], _CLIP)
    rest = [a for a in range(x.ndim) if a not in moving]
    return _written(x, transposed_once(update, (*moving, *rest)), points, tuple(moving), True)
