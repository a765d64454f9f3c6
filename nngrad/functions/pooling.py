"""Max, average and sum pooling, and unpooling.

The windows lie along the last axes, one for each entry of `kernel`, or along those before the last one if
`channel_last`. Any number of axes may precede them.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..graph import Array, Function, Op, Variable, composite, op
from ..graph.arguments import Ints, Shape
from ..graph.thresholds import MOST_SLICES
from . import reduction
from .arithmetic import floating, is_floating
from .axes import rowwise
from .pooling_windows import (
    WindowAxis,
    apart,
    are_disjoint,
    at_places,
    check_no_empty_window,
    joined,
    over_windows,
    per_window,
    pooled_shape,
    to_places,
    window_offsets,
    windows,
)
from .transposition import transposed


def _pooled_axes(f: Function) -> tuple[int, int]:
    """The number of trailing axes: those along which windows lie, and a last channel axis."""
    return (len(f.args["kernel"]) + f.args["channel_last"],) * 2


# ---------------------------------------------------------------- maxima


@op(axes=rowwise(_pooled_axes))
def max_pooling(
    x: Array, /, kernel: Ints, stride: Ints | None = None, ignore_border: bool = True, pad: Ints | None = None,
    channel_last: bool = False, dilation: Ints | None = None, ceil_mode: bool = False,
) -> jax.Array:
    """Maximum over each window. The gradient goes to the first maximum of a window, in row-major order.

    Args:
        x: (*batch, *sizes), or (*batch, *sizes, C) if `channel_last`, with any number of spatial axes.
        kernel: Size of the windows, one entry per spatial axis.
        stride: Steps between them; `kernel` by default. A single entry, here and below, applies to all axes.
        ignore_border: Whether to omit windows that reach beyond the end of the padding; else each window that starts in
            x or in the padding before it counts.
        pad: Padding at both ends of each spatial axis, which is never the maximum; 0 by default.
        channel_last: Whether the channel axis is the last.
        dilation: Distances between the positions of a window; 1 by default.
        ceil_mode: Whether, whatever `ignore_border` is, elements that would be left over get one more window, if it
            starts in x or in the padding before it.

    Returns:
        The shape of x with spatial sizes (n + 2 pad - dilation (kernel - 1) - 1) / stride + 1, rounded down, or up with
        `ceil_mode`; or ceil((n + pad) / stride) if not `ignore_border`.

    Raises:
        ValueError: The windows do not fit x, or some would lie entirely in the padding.
    """
    axes = windows(x.shape, kernel, stride, ignore_border, pad, channel_last, dilation, ceil_mode)
    check_no_empty_window(axes)
    lowest = -math.inf if is_floating(x) else jnp.iinfo(x.dtype).min
    y: jax.Array = over_windows(x, axes, lax.max, np.array(lowest, x.dtype))
    return y


def _dimensions(ndim: int, axes: list[WindowAxis]) -> tuple[Any, ...]:
    """Sizes, steps, padding and dilation of the windows, as XLA takes them."""
    sizes, steps, ends, apart = [1] * ndim, [1] * ndim, [(0, 0)] * ndim, [1] * ndim
    for a in axes:
        sizes[a.axis], steps[a.axis], ends[a.axis], apart[a.axis] = a.kernel, a.stride, a.ends, a.dilation
    return tuple(sizes), tuple(steps), tuple(ends), None, tuple(apart)


def first_maxima(x: Any, axes: list[WindowAxis]) -> Any:
    """For each window, the index of its first maximum; the number of its positions if all its elements are NaN."""
    elements = at_places(x, axes, np.array(math.nan, x.dtype))
    largest = lax.full_like(elements[0], -math.inf)
    for e in elements:
        largest = lax.select(lax.gt(e, largest), e, largest)
    first = lax.full(largest.shape, len(elements), jnp.int32)
    for n, e in reversed([*enumerate(elements)]):
        first = lax.select(lax.eq(e, largest), lax.full_like(first, n), first)
    return first


def _positions(first: Any, axes: list[WindowAxis]) -> Any:
    """The index of each position in its window, where they lie apart."""
    kernels = [a.kernel for a in axes]
    numbers = lax.reshape(lax.iota(jnp.int32, math.prod(kernels)), kernels)
    return lax.broadcast_in_dim(numbers, apart(first, axes).shape, [a.axis + i + 1 for i, a in enumerate(axes)])


def are_few(axes: list[WindowAxis]) -> bool:
    """True if windows are small enough to go through their positions one by one."""
    return math.prod([a.kernel for a in axes]) <= MOST_SLICES


def _winners(x: Any, axes: list[WindowAxis]) -> Any:
    """For each window, the position of its first maximum along the flattened spatial axes."""
    first, last = axes[0].axis, axes[-1].axis + 1
    counted = lax.iota(jnp.int32, math.prod(x.shape[first:last])).reshape(x.shape[first:last])
    counted = lax.broadcast_in_dim(counted, x.shape, range(first, last))
    outside = np.int32(counted.size)

    def better(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
        earlier = lax.bitwise_and(lax.eq(a[0], b[0]), lax.lt(b[1], a[1]))
        take = lax.bitwise_or(lax.gt(b[0], a[0]), earlier)
        return lax.select(take, b[0], a[0]), lax.select(take, b[1], a[1])

    lowest = np.array(-math.inf, x.dtype)
    return lax.reduce_window((x, counted), (lowest, outside), better, *_dimensions(x.ndim, axes))[1]


def _flat(x: Any, axes: list[WindowAxis]) -> Any:
    """`x` as (batch, positions, channels)."""
    first, last = axes[0].axis, axes[-1].axis + 1
    return lax.reshape(x, (math.prod(x.shape[:first]), math.prod(x.shape[first:last]), math.prod(x.shape[last:])))


def _indices(x: Any, axes: list[WindowAxis]) -> tuple[Any, ...]:
    winners = _flat(_winners(x, axes), axes)
    batch, channel = (lax.broadcasted_iota(jnp.int32, winners.shape, axis) for axis in (0, 2))
    return batch, winners, channel


@op(linear=True)
def max_pooling_backward(
    dy: Array, x: Array, /, kernel: Ints, stride: Ints | None = None, ignore_border: bool = True,
    pad: Ints | None = None, channel_last: bool = False, dilation: Ints | None = None, ceil_mode: bool = False,
) -> jax.Array:
    """The gradient of `max_pooling` at `x`: each element of `dy`, added at the first maximum of its window.

    Linear in `dy`; `x` only determines positions, and gets no gradient.

    Args:
        dy: Of the shape that `max_pooling` returns.
        x: As in `max_pooling`; the result has its shape.
        ...: As in `max_pooling`.
    """
    x = floating(x)
    axes = windows(x.shape, kernel, stride, ignore_border, pad, channel_last, dilation, ceil_mode)
    check_no_empty_window(axes)
    expected = pooled_shape(x.shape, axes)
    if dy.shape != expected:
        raise ValueError(f"dy must have the shape of the pooled x, {expected}, got {dy.shape}")
    if are_few(axes):
        first, zero = first_maxima(x, axes), lax.full_like(dy, 0)
        if are_disjoint(axes):
            at_first = lax.eq(apart(first, axes), _positions(first, axes))
            return joined(lax.select(at_first, apart(dy, axes), apart(zero, axes)), axes, x.shape)
        parts = [lax.select(lax.eq(first, lax.full_like(first, n)), dy, zero) for n in range(len(window_offsets(axes)))]
        y: jax.Array = to_places(parts, axes)
        return y
    zeros = _flat(lax.full_like(x, 0, dy.dtype), axes)
    return lax.reshape(zeros.at[_indices(x, axes)].add(_flat(dy, axes), mode="drop"), x.shape)


@op(linear=True)
def max_pooling_select(
    g: Array, x: Array, /, kernel: Ints, stride: Ints | None = None, ignore_border: bool = True,
    pad: Ints | None = None, channel_last: bool = False, dilation: Ints | None = None, ceil_mode: bool = False,
) -> jax.Array:
    """The elements of `g` where the windows of `x` have their first maxima: the transpose of `max_pooling_backward`.

    Linear in `g`; `x` only determines positions, and gets no gradient.

    Args:
        g: Of the shape of `x`.
        ...: As in `max_pooling`.
    """
    x = floating(x)
    axes = windows(x.shape, kernel, stride, ignore_border, pad, channel_last, dilation, ceil_mode)
    check_no_empty_window(axes)
    if g.shape != x.shape:
        raise ValueError(f"g must have the shape of x, {x.shape}, got {g.shape}")
    if are_few(axes):
        first, y = first_maxima(x, axes), lax.full(pooled_shape(x.shape, axes), 0, g.dtype)
        for n, e in enumerate(at_places(g, axes, np.zeros((), g.dtype))):
            y = lax.select(lax.eq(first, lax.full_like(first, n)), e, y)
        return y
    taken = _flat(g, axes).at[_indices(x, axes)].get(mode="fill", fill_value=0)
    return lax.reshape(taken, pooled_shape(x.shape, axes))


# ---------------------------------------------------------------- sums and means


@op(linear=True, axes=rowwise(_pooled_axes), precision="inside")
def sum_pooling(
    x: Array, /, kernel: Ints, stride: Ints | None = None, ignore_border: bool = True, pad: Ints | None = None,
    channel_last: bool = False, dilation: Ints | None = None, ceil_mode: bool = False,
) -> jax.Array:
    """Sum over each window; shapes as in `max_pooling`.

    Args:
        pad: Zeros added at both ends of each spatial axis; 0 by default.
        ...: As in `max_pooling`.

    Raises:
        ValueError: The windows do not fit x.
    """
    axes = windows(x.shape, kernel, stride, ignore_border, pad, channel_last, dilation, ceil_mode)
    y: jax.Array = over_windows(x, axes, lax.add, np.zeros((), x.dtype))
    return y


@op(linear=True, axes=rowwise(_pooled_axes), precision="inside")
def average_pooling(
    x: Array, /, kernel: Ints, stride: Ints | None = None, ignore_border: bool = True, pad: Ints | None = None,
    channel_last: bool = False, including_pad: bool = True, ceil_mode: bool = False,
) -> jax.Array:
    """Mean over each window; shapes as in `max_pooling`.

    Args:
        x: As in `max_pooling`; integers are averaged as float32.
        pad: Padding at both ends of each spatial axis; 0 by default.
        including_pad: Whether the padding counts, as zeros; else only elements of x are averaged. The part of a window
            beyond the padding never counts.
        ...: As in `max_pooling`.

    Raises:
        ValueError: The windows do not fit x; or some lie entirely in padding that does not count.
    """
    x = floating(x)
    axes = windows(x.shape, kernel, stride, ignore_border, pad, channel_last, None, ceil_mode)
    if not including_pad:
        check_no_empty_window(axes)
    sums = over_windows(x, axes, lax.add, np.zeros((), x.dtype))
    y: jax.Array = per_window(sums, axes, [a.pad if including_pad else 0 for a in axes])
    return y


@op(linear=True, axes=rowwise(_pooled_axes, shape="shape"))
def sum_pooling_backward(
    dy: Array, /, shape: Shape, kernel: Ints, stride: Ints | None = None, ignore_border: bool = True,
    pad: Ints | None = None, channel_last: bool = False, dilation: Ints | None = None, ceil_mode: bool = False,
) -> jax.Array:
    """The transpose of `sum_pooling` of an array of `shape`: each element of `dy` is added to its whole window.

    Args:
        dy: Of the shape that `sum_pooling` returns.
        shape: The shape of x and of the result.
        ...: As in `sum_pooling`.
    """
    axes = windows(tuple(shape), kernel, stride, ignore_border, pad, channel_last, dilation, ceil_mode)
    arguments = (kernel, stride, ignore_border, pad, channel_last, dilation, ceil_mode)
    return _transposed(dy, shape, axes, sum_pooling, *arguments)


@op(linear=True, axes=rowwise(_pooled_axes, shape="shape"))
def average_pooling_backward(
    dy: Array, /, shape: Shape, kernel: Ints, stride: Ints | None = None, ignore_border: bool = True,
    pad: Ints | None = None, channel_last: bool = False, including_pad: bool = True, ceil_mode: bool = False,
) -> jax.Array:
    """The transpose of `average_pooling` of an array of `shape`: each element of `dy` is spread over its window.

    Args:
        dy: Of the shape that `average_pooling` returns.
        shape: The shape of x and of the result.
        ...: As in `average_pooling`.
    """
    axes = windows(tuple(shape), kernel, stride, ignore_border, pad, channel_last, None, ceil_mode)
    arguments = (kernel, stride, ignore_border, pad, channel_last, including_pad, ceil_mode)
    return _transposed(dy, shape, axes, average_pooling, *arguments)


def _transposed(dy: Any, shape: Shape, axes: list[WindowAxis], pooling: Op, *arguments: Any) -> jax.Array:
    """The transpose of `pooling` with these `arguments`. Elements are repeated over windows that are disjoint: XLA
    pads and adds for each element of a window in loops of their own."""
    dy = floating(dy)
    if are_disjoint(axes) and dy.shape == pooled_shape(tuple(shape), axes):
        shares = dy if pooling is sum_pooling else per_window(dy, axes, [0] * len(axes))
        return joined(apart(shares, axes), axes, shape)
    return transposed(lambda x: pooling.forward(x, *arguments), shape, dy, "dy")


@composite
def global_average_pooling(x: Array, /) -> Variable:
    """Mean over all spatial axes, which keep size 1.

    Args:
        x: (batch, channels, *sizes), with one spatial axis or more.

    Returns:
        (batch, channels, 1, ...).

    Raises:
        ValueError: x has fewer than three axes.
    """
    if x.ndim < 3:
        raise ValueError(f"x must be of shape (N, C, *sizes), got {x.shape}")
    return reduction.mean(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@op(linear=True, axes=rowwise(_pooled_axes))
def unpooling(x: Array, /, kernel: Ints, channel_last: bool = False) -> jax.Array:
    """Each element repeated `kernel[i]` times along spatial axis i: spatial sizes are multiplied by `kernel`.

    Args:
        x: (*batch, *sizes), or (*batch, *sizes, C) if `channel_last`.
        kernel: One entry for each spatial axis.
        channel_last: Whether the channel axis is the last.

    Raises:
        ValueError: `kernel` has no entries, one of them is below 1, or x has too few axes.
    """
    axes = windows(x.shape, kernel, (1,), False, None, channel_last)
    factors = {a.axis: a.kernel for a in axes}
    return joined(apart(x, axes), axes, [n * factors.get(i, 1) for i, n in enumerate(x.shape)])
