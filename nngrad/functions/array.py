"""Movement, selection and creation of arrays."""

from __future__ import annotations

import builtins
import functools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ..graph import Variable, as_variable, composite, op
from ..graph.arguments import Axes, Dims, DTypeName, Ignored, Ints, Shape, Static, axes_of, axis_of
from ..graph.axes import inserts, mixes, reduces, rowwise
from ..graph.spec import FLOAT32
from . import axis_maps, reduction
from .arithmetic import alike
from .index_keys import Entry, resolve, window
from .transposition import transposed

# ---------------------------------------------------------------- creation


def filled_like(x: Variable, val: float) -> Variable:
    """A constant of the graph: `val` everywhere, in the shape and dtype of `x`."""
    y: Variable = constant(val=val, shape=x.shape, dtype=x.dtype)
    return y


def zeros_like(x: Variable) -> Variable:
    """Zeros in the shape and dtype of `x`."""
    return filled_like(x, 0)


@op(fuses="moving")
def constant(val: float = 0, shape: Shape = (), dtype: DTypeName = FLOAT32):
    """An array of `shape` and `dtype` filled with `val`."""
    return lax.full(shape, val, dtype)


@op
def arange(start: float, stop: float, step: float = 1):
    """`start`, `start + step`, ... up to but without `stop`, as float32."""
    if step == 0:
        raise ValueError("step must not be 0")
    n = math.ceil((stop - start) / step)
    return lax.add(lax.mul(lax.iota(jnp.float32, n if n > 0 else 0), np.float32(step)), np.float32(start))


@op
def linspace(start: float, stop: float, num: int):
    """`num` evenly spaced numbers from `start` to `stop`, both included, as float32."""
    if num < 0:
        raise ValueError(f"num must not be negative, got {num}")
    t = lax.div(lax.iota(jnp.float32, num), np.float32(num - 1 if num > 1 else 1))
    return lax.add(lax.mul(lax.sub(np.float32(1), t), np.float32(start)), lax.mul(t, np.float32(stop)))


@op(axes=rowwise(lambda f: (1, len(f.args["shape"]))))
def one_hot(x, /, shape: Shape):
    """1 at an index, 0 elsewhere, as float32.

    Args:
        x: Whole numbers `(..., k)`: each row along the last axis is an index into an array of `shape`.
            Negative ones count from the end; one that is out of range or not whole gives zeros.
        shape: The `k` sizes.

    Returns:
        An array `(..., *shape)`.
    """
    if x.ndim == 0 or x.shape[-1] != len(shape):
        raise ValueError(f"the last axis of x, of shape {x.shape}, must have one index for each size in {shape}")
    lead, result = x.ndim - 1, x.shape[:-1] + shape
    hits = []
    for i, n in enumerate(shape):
        index = lax.index_in_dim(x, i, x.ndim - 1, keepdims=False)
        index = whole(index)
        index = lax.select(lax.lt(index, lax.full_like(index, 0)), lax.add(index, lax.full_like(index, n)), index)
        index = lax.broadcast_in_dim(index, result, tuple(range(lead)))
        hits.append(lax.eq(index, lax.broadcasted_iota(jnp.int32, result, lead + i)))
    hit = functools.reduce(lax.bitwise_and, hits) if hits else lax.full(result, True)
    return lax.convert_element_type(hit, jnp.float32)


@composite
def meshgrid(*x, ij_indexing: bool = False):
    """Coordinates of a grid from those along each of its axes.

    Args:
        x: One array `(n_i,)` for each axis.
        ij_indexing: Whether the grid's axes come in the order of `x`; else the first two are exchanged.

    Returns:
        For each of `x` an array in the shape of the grid that varies along that axis only.
    """
    for i, each in enumerate(x):
        if each.ndim != 1:
            raise ValueError(f"meshgrid: x[{i}] of shape {each.shape} must have one axis")
    order = list(range(len(x)))
    if not ij_indexing and len(x) > 1:
        order[:2] = 1, 0
    grid = tuple(x[i].size for i in order)
    return tuple(
        broadcast(reshape(each, shape=tuple(-1 if i == j else 1 for j in order)), shape=grid)
        for i, each in enumerate(x)
    )


# ---------------------------------------------------------------- dtype and shape


@op
def shape(x, /, start: int | None = None, end: int | None = None):
    """The sizes of the axes of `x` as int32, or `[start:end]` of them."""
    return lax.convert_element_type(np.asarray(x.shape[start:end], np.int32), jnp.int32)


@op(diagonal=True, linear=True)
def cast(x, /, dtype: DTypeName):
    """`x` in another dtype."""
    return lax.convert_element_type(x, dtype)


@op(linear=True, axes=axis_maps.RESHAPED, view=True)
def reshape(x, /, shape: Dims, inplace: Ignored = True):
    """The elements of `x` in a new shape; one size may be -1."""
    return jnp.reshape(x, shape)


@op(linear=True, axes=axis_maps.TRANSPOSED, fuses="moving")
def transpose(x, /, axes: Ints | None = None):
    """The axes of `x` in the order `axes`; None reverses them."""
    order = tuple(range(x.ndim))[::-1] if axes is None else tuple(axis_of(a, x.ndim, "axes:") for a in axes)
    if sorted(order) != list(range(x.ndim)):
        raise ValueError(f"axes {axes} must name each of the {x.ndim} axes once")
    return lax.transpose(x, order)


@op(linear=True, axes=axis_maps.REPEATED, fuses="moving")
def broadcast(x, /, shape: Shape):
    """`x` expanded to `shape`: axes of size 1 are repeated and missing leading ones added."""
    return jnp.broadcast_to(x, shape)


@composite
def broadcast_to(x, y, /, axis: int | None = None):
    """`y` expanded to the shape of `x`, its first axis at `axis` of `x`; None or -1 puts its last axis last."""
    room = x.ndim - y.ndim
    lead = room if axis is None or axis == -1 else axis
    if not 0 <= lead <= room:
        raise ValueError(f"broadcast_to: axis {axis} leaves no room for the {y.ndim} axes of y in {x.ndim} axes")
    return broadcast(reshape(y, shape=(1,) * lead + y.shape + (1,) * (room - lead)), shape=x.shape)


@composite
def sum_to(x, /, shape: Shape):
    """`x` summed over the axes along which `shape` would be repeated to give `x.shape`: the transpose of
    `broadcast`."""
    if x.shape == shape:
        return x
    lead = len(x.shape) - len(shape)
    if lead < 0 or any(n not in (1, m) for n, m in zip(shape, x.shape[lead:], strict=True)):
        raise ValueError(f"sum_to: shape {shape} does not broadcast to the shape {x.shape} of x")
    axes = tuple(range(lead)) + tuple(
        lead + i for i, n in enumerate(shape) if n == 1 and x.shape[lead + i] != 1
    )
    return reshape(reduction.sum(x, axis=axes), shape=shape)


@composite
def tile(x, /, reps: Ints):
    """`x` repeated as a whole, `reps` times along each axis; missing leading entries of either count as 1."""
    if any(r < 0 for r in reps):
        raise ValueError(f"tile: reps must not be negative, got {reps}")
    ndim = len(reps) if len(reps) > x.ndim else x.ndim
    reps = (1,) * (ndim - len(reps)) + reps
    shape = (1,) * (ndim - x.ndim) + x.shape
    apart = reshape(x, shape=tuple(s for n in shape for s in (1, n)))
    repeated = broadcast(apart, shape=tuple(s for r, n in zip(reps, shape, strict=True) for s in (r, n)))
    return reshape(repeated, shape=tuple(r * n for r, n in zip(reps, shape, strict=True)))


# ---------------------------------------------------------------- joining and parting


@op(linear="together", axes=mixes("axis"), fuses="moving")
def concatenate(*x, axis: int = -1):
    """The arrays joined along an axis that they have; by default the last."""
    axis = axis_of(axis, x[0].ndim)
    for i, other in enumerate(x):
        if _without(other.shape, axis) != _without(x[0].shape, axis) or other.ndim != x[0].ndim:
            raise ValueError(f"x[{i}] of shape {other.shape} does not fit x[0] of shape {x[0].shape} along axis {axis}")
    return lax.concatenate(alike(*x), axis)


@op(linear="together", axes=inserts("axis"))
def stack(*x, axis: int = 0):
    """Arrays of one shape joined along a new axis."""
    axis = axis_of(axis, x[0].ndim + 1)
    for i, other in enumerate(x):
        if other.shape != x[0].shape:
            raise ValueError(f"x[{i}] of shape {other.shape} must have the shape {x[0].shape} of x[0]")
    return lax.concatenate([lax.expand_dims(a, (axis,)) for a in alike(*x)], axis)


@op(several=True, linear=True, axes=reduces("axis", one=True))
def split(x, /, axis: int = 0):
    """The `x.shape[axis]` slices of `x` along `axis`, without that axis."""
    axis = axis_of(axis, x.ndim)
    if x.shape[axis] == 0:
        raise ValueError(f"axis {axis} of shape {x.shape} has nothing to split")
    return tuple([lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis])])


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


# ---------------------------------------------------------------- slices


@op(type_name="Slice", linear=True, axes=axis_maps.TAKEN, fuses="moving")
def take_slices(x, /, key: Static):
    """A regular part of `x`: what `x[key]` is for a key of ints, slices and None.

    Args:
        key: For each axis an index, which drops it, or a window `(start, count, step)`, where the step may be
            negative; and None wherever a new axis of size 1 goes.
    """
    places = _places(key, x.shape)
    lows, limits = [p[0] for p in places], [p[0] + (p[1] - 1) * p[2] + 1 if p[1] else p[0] for p in places]
    y = lax.slice(x, lows, limits, [p[2] for p in places])
    return lax.reshape(lax.rev(y, [i for i, p in enumerate(places) if p[3]]), _shape_of(key))


@op(linear=True, axes=axis_maps.PUT, fuses="moving")
def put_slices(y, /, key: Static, shape: Shape):
    """Zeros of `shape` with `y` put where `take_slices` takes it from: the transpose of `take_slices`."""
    places = _places(key, shape)
    if y.shape != _shape_of(key):
        raise ValueError(f"y of shape {y.shape} must have the shape {_shape_of(key)} of what key takes")
    y = lax.rev(lax.reshape(y, [p[1] for p in places]), [i for i, p in enumerate(places) if p[3]])
    margins = [
        (low, n - low - ((count - 1) * step + 1 if count else 0), step - 1)
        for (low, count, step, _), n in zip(places, shape, strict=True)
    ]
    return lax.pad(y, y.dtype.type(0), margins)


def _places(key: tuple[Entry, ...], shape: tuple[int, ...]) -> list[tuple[int, int, int, bool]]:
    """For each axis of `shape`: the first place in ascending order, their count and distance, and whether
    they are taken in descending order."""
    entries = [(e, 1, 1) if isinstance(e, int) else e for e in key if e is not None]
    if len(entries) != len(shape):
        raise ValueError(f"key {key} has entries for {len(entries)} axes, but there are {len(shape)}")
    places = []
    for axis, ((start, count, step), n) in enumerate(zip(entries, shape, strict=True)):
        last = start + (count - 1) * step
        if step == 0 or count < 0 or (count and not (0 <= start < n and 0 <= last < n)):
            raise ValueError(f"key {key} reaches beyond axis {axis} of size {n}")
        low = 0 if count == 0 else last if step < 0 else start
        places.append((low, count, abs(step) if count > 1 else 1, step < 0 and count > 1))
    return places


def _shape_of(key: tuple[Entry, ...]) -> tuple[int, ...]:
    return tuple(1 if e is None else e[1] for e in key if not isinstance(e, int))


@composite
def slice(x, /, start: Static | None = None, stop: Static | None = None, step: Static | None = None):
    """`x[start:stop:step]` along each axis, as Python's slices are.

    Args:
        start: One number, or None for the default, per axis; fewer stand for the last axes.
        stop: Likewise.
        step: Likewise; it may be negative.
    """
    parts = []
    for name, values in (("start", start), ("stop", stop), ("step", step)):
        values = values if isinstance(values, tuple) else (values,) * (values is not None)
        if len(values) > x.ndim:
            raise ValueError(f"slice: {name} has {len(values)} entries for an array of {x.ndim} axes")
        parts.append((None,) * (x.ndim - len(values)) + values)
    try:
        key = tuple(window(builtins.slice(*part), n) for part, n in zip(zip(*parts, strict=True), x.shape, strict=True))
    except IndexError as error:
        raise ValueError(f"slice: start={start}, stop={stop}, step={step}: {error}") from None
    return take_slices(x, key=key)


@op(linear=True, axes=mixes("axes", none=-1), fuses="moving")
def flip(x, /, axes: Axes | None = None):
    """The order of the elements reversed along `axes`; None for the last."""
    return lax.rev(x, axes_of(-1 if axes is None else axes, x.ndim, "axes:"))


# ---------------------------------------------------------------- points


@op(type_name="GatherNd", linear=True, axes=axis_maps.POINTS_TAKEN)
def take_points(x, indices, /, axes: Ints, at: int = 0, outside: float = 0):
    """The slices of `x` at given points.

    Args:
        x: Any array.
        indices: Whole numbers `(*points, k)`: for each point an index into each of the `k` axes. Negative ones
            count from the end.
        axes: The `k` axes of `x` that are indexed.
        at: Where the axes `points` go among the other axes of `x`.
        outside: What there is at a point outside of `x`: 0 or NaN, which stands for the least number in integers.
    """
    if not (outside == 0 or math.isnan(outside)):
        raise ValueError(f"outside: expected 0 or NaN, got {outside}")  # any other number would make it non-linear
    numbers, window_shape = _point_axes(x.shape, indices, axes, at)
    dimensions = lax.GatherDimensionNumbers(offset_dims=numbers, collapsed_slice_dims=tuple(sorted(axes)),
                                            start_index_map=axes)
    fill = None if math.isnan(outside) else x.dtype.type(outside)
    return lax.gather(x, wrapped(indices, [x.shape[a] for a in axes]), dimensions, window_shape,
                      mode=lax.GatherScatterMode.FILL_OR_DROP, fill_value=fill)


@op(type_name="ScatterNd", linear=True, axes=axis_maps.POINTS_PUT)
def put_points(y, indices, /, axes: Ints, shape: Shape, at: int = 0):
    """Zeros of `shape` with the slices `y` added at given points: the transpose of `take_points`. What lies
    outside is left out; slices at the same point add up."""
    numbers, _ = _point_axes(shape, indices, axes, at)
    rest = [n for i, n in enumerate(shape) if i not in axes]
    expected = (*rest[:at], *indices.shape[:-1], *rest[at:])
    if y.shape != expected:
        raise ValueError(f"y of shape {y.shape} must have the shape {expected} of what is taken at the indices")
    dimensions = lax.ScatterDimensionNumbers(update_window_dims=numbers, inserted_window_dims=tuple(sorted(axes)),
                                             scatter_dims_to_operand_dims=axes)
    return lax.scatter_add(lax.full(shape, 0, y.dtype), wrapped(indices, [shape[a] for a in axes]), y, dimensions,
                           mode=lax.GatherScatterMode.FILL_OR_DROP)


def _point_axes(shape: tuple[int, ...], indices: Any, axes: tuple[int, ...], at: int) -> tuple[Any, Any]:
    """The axes of the result that come from `shape`, and the shape of one slice."""
    ndim = len(shape)
    if indices.ndim == 0 or indices.shape[-1] != len(axes):
        raise ValueError(f"indices of shape {indices.shape} must hold one index for each of the axes {axes} last")
    if len(set(axes)) != len(axes) or any(not 0 <= a < ndim for a in axes):
        raise ValueError(f"axes {axes} must be different ones of the {ndim} axes")
    rest = ndim - len(axes)
    if not 0 <= at <= rest:
        raise ValueError(f"at {at} must be between 0 and {rest}")
    points = indices.ndim - 1
    numbers = (*range(at), *range(at + points, rest + points))
    return numbers, tuple(1 if i in axes else n for i, n in enumerate(shape))


def wrapped(indices: Any, sizes: list[int]) -> Any:
    """`indices`, along whose last axis the sizes differ, as int32 without negatives."""
    indices = whole(indices)
    size = lax.broadcast_in_dim(np.asarray(sizes, np.int32), indices.shape, (indices.ndim - 1,))
    return lax.select(lax.lt(indices, lax.full_like(indices, 0)), lax.add(indices, size), indices)


def getitem(x: Variable, key: Any) -> Variable:
    """`x[key]` with NumPy's basic and advanced indexing.

    A key may hold ints, slices, None, `...`, arrays or lists of integers, Variables of integers, and arrays or
    lists of bools. Indices that are known are checked here; one in a Variable that is out of range gives NaN.

    Raises:
        IndexError: An index is out of range, or not an index; the message names the axis.
    """
    found = resolve(key, x.shape)
    trivial = not any(e is None or isinstance(e, int) for e in found.basic) and all(
        e == (0, n, 1) for e, n in zip(found.basic, x.shape, strict=True)
    )
    if not (found.axes and trivial):
        x = take_slices(x, key=found.basic)
    return take_points(x, _points(found.indices), axes=found.axes, at=found.at, outside=math.nan) if found.axes else x


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
    result: Variable = stack(*[broadcast(i, shape=shape) for i in parts], axis=-1)
    return result


def whole(indices: Any) -> Any:
    """`indices` as int32; a floating one that is no whole number becomes one that is out of range of every axis."""
    result = lax.convert_element_type(indices, jnp.int32)
    if not jnp.issubdtype(indices.dtype, jnp.floating):
        return result
    return lax.select(lax.eq(indices, lax.round(indices)), result, lax.full_like(result, np.iinfo(np.int32).max))


# ---------------------------------------------------------------- margins


@op(axes=axis_maps.PADDED, fuses="moving")
def pad(x, /, pad_width: Ints, mode: str = "constant", constant_value: float = 0):
    """`x` with margins.

    Args:
        pad_width: `(before, after)` for each axis in turn, flat; fewer stand for the last axes.
        mode: "constant" fills with `constant_value`; "reflect" mirrors at the outermost elements without
            repeating them; "repeat" repeats the outermost elements.
    """
    widths = _widths(x.shape, pad_width, mode)
    if mode == "constant":
        return lax.pad(x, x.dtype.type(constant_value), [(*w, 0) for w in widths])
    for axis, (before, after) in enumerate(widths):
        n = x.shape[axis]
        if before == after == 0:
            continue
        if mode == "reflect":
            left = lax.rev(lax.slice_in_dim(x, 1, 1 + before, axis=axis), (axis,))
            right = lax.rev(lax.slice_in_dim(x, n - 1 - after, n - 1, axis=axis), (axis,))
        else:
            left, right = (
                jnp.broadcast_to(lax.slice_in_dim(x, i, i + 1, axis=axis), (*x.shape[:axis], w, *x.shape[axis + 1 :]))
                for i, w in ((0, before), (n - 1, after))
            )
        x = lax.concatenate([left, x, right], axis)
    return x


@op(linear=True, axes=rowwise(axis_maps.padded_axes, shape="shape"))
def pad_transpose(y, /, shape: Shape, pad_width: Ints, mode: str = "constant"):
    """Each element of an array of `shape` gets the sum of the elements of `y` that `pad` copies it to: the
    transpose of `pad`."""
    return transposed(lambda x: pad.forward(x, pad_width, mode), shape, y, "y")


def _widths(shape: tuple[int, ...], pad_width: tuple[int, ...], mode: str) -> list[tuple[int, int]]:
    """`(before, after)` for each axis of `shape`."""
    ndim = len(shape)
    if mode not in ("constant", "reflect", "repeat"):
        raise ValueError(f"mode must be 'constant', 'reflect' or 'repeat', got {mode!r}")
    if len(pad_width) % 2 or len(pad_width) > 2 * ndim or any(w < 0 for w in pad_width):
        raise ValueError(f"pad_width {pad_width} must be pairs of widths, not negative, for at most {ndim} axes")
    pairs = list(zip(pad_width[::2], pad_width[1::2], strict=True))
    widths = [(0, 0)] * (ndim - len(pairs)) + pairs
    for axis, (n, pair) in enumerate(zip(shape, widths, strict=True)):
        for w in pair:
            if (mode == "reflect" and w > 0 and w >= n) or (mode == "repeat" and w > 0 and n == 0):
                raise ValueError(f"axis {axis} of size {n} is too short for a {mode} margin of {w}")
    return widths


# ---------------------------------------------------------------- diagonals


@op(linear=True, axes=axis_maps.ON_DIAGONAL)
def matrix_diag(x, /):
    """Square matrices `(..., n, n)` with the last axis of `x` `(..., n)` on the diagonal, and 0 elsewhere."""
    if x.ndim == 0:
        raise ValueError("x must have at least one axis")
    wide = lax.broadcast_in_dim(x, (*x.shape, x.shape[-1]), tuple(range(x.ndim)))
    return lax.select(_band(wide.shape, 0, 0), wide, lax.full_like(wide, 0))


@op(linear=True, axes=rowwise("(n,n)->(n)"))
def matrix_diag_part(x, /):
    """The diagonals `(..., n)` of square matrices `(..., n, n)`."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"x of shape {x.shape} must hold square matrices in its last two axes")
    n = x.shape[-1]
    return lax.slice_in_dim(lax.reshape(x, (*x.shape[:-2], n * n)), 0, n * n, n + 1, x.ndim - 2)


@op(linear=True, axes=rowwise("(m,n)->(m,n)"))
def trilu(x, /, k: int = 0, upper: bool = True):
    """The upper, or the lower, triangle of the matrices in the last two axes, with 0 elsewhere.

    Args:
        k: Which diagonal bounds it: 0 for the main one, above it if positive, below it if negative.
        upper: Which triangle.
    """
    if x.ndim < 2:
        raise ValueError(f"x of shape {x.shape} must hold matrices in its last two axes")
    inside = _band(x.shape, k, None) if upper else _band(x.shape, None, k)
    return lax.select(inside, x, lax.full_like(x, 0))


def _band(shape: tuple[int, ...], low: int | None, high: int | None) -> Any:
    """Where the column less the row is between `low` and `high`."""
    rows, columns = (lax.broadcasted_iota(jnp.int32, shape, len(shape) - i) for i in (2, 1))
    offset = lax.sub(columns, rows)
    inside = lax.full(shape, True)
    if low is not None:
        inside = lax.bitwise_and(inside, lax.ge(offset, lax.full_like(offset, low)))
    if high is not None:
        inside = lax.bitwise_and(inside, lax.le(offset, lax.full_like(offset, high)))
    return inside
