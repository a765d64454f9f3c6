"""Maxima, means and sums over windows, and the repetition of elements.

The windows lie along the last axes, as many as `kernel` has entries, or along those before the last one if
`channel_last`. Any number of axes may come before.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from ..graph import Function, composite, op
from ..graph.arguments import Ints, Shape, per_axis
from ..graph.axes import rowwise
from . import reduction
from .arithmetic import floating, is_floating
from .transposition import transposed

# ---------------------------------------------------------------- windows


class Axis(NamedTuple):
    """The windows along one axis."""

    axis: int
    size: int
    kernel: int
    stride: int
    pad: int
    count: int
    """Number of windows."""

    @property
    def ends(self) -> tuple[int, int]:
        """Padding before the elements, and behind them as far as the last window reaches (negative: cut off)."""
        return self.pad, (self.count - 1) * self.stride + self.kernel - self.size - self.pad

    @property
    def least(self) -> int:
        """The least number of elements that a window has: that of the first or the last one."""
        last = (self.count - 1) * self.stride - self.pad
        return min(min(first + self.kernel, self.size) - max(first, 0) for first in (-self.pad, last))

    def counts(self, margin: int) -> Any:
        """How many positions each window has among the elements and `margin` more on either side, as int32."""
        first = lax.iota(jnp.int32, self.count) * self.stride - self.pad
        end = lax.min(first + self.kernel, lax.full_like(first, self.size + margin))
        return end - lax.max(first, lax.full_like(first, -margin))


def windows(
    shape: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...] | None,
    ignore_border: bool,
    pad: tuple[int, ...] | None,
    channel_last: bool,
) -> list[Axis]:
    """The windows along each spatial axis of an array of `shape`; a ValueError names the argument that is wrong."""
    count = len(kernel)
    if not 1 <= count <= 3:
        raise ValueError(f"kernel {kernel} must have 1 to 3 entries, one per spatial axis")
    if min(kernel) < 1:
        raise ValueError(f"kernel must be at least 1, got {kernel}")
    steps = kernel if stride is None else per_axis(stride, "stride", count, 1, 1)
    pads = per_axis(pad, "pad", count, 0, 0)
    first = len(shape) - count - channel_last
    if first < 0:
        raise ValueError(
            f"kernel {kernel} is for {count} spatial axes{' and channels' * channel_last}, but x has shape {shape}"
        )
    axes = []
    for i, (k, s, p) in enumerate(zip(kernel, steps, pads, strict=True)):
        n = shape[first + i]
        length = n + 2 * p
        if ignore_border and k > length:
            raise ValueError(f"kernel {kernel} is larger than the {length} elements of padded spatial axis {i}")
        axes.append(Axis(first + i, n, k, s, p, (length - k) // s + 1 if ignore_border else -(-length // s)))
        if length + k + s > _LARGEST:
            raise ValueError(f"kernel {kernel}, stride {steps} and pad {pads} go beyond the range of int32")
    return axes


_LARGEST = 2**31 - 1


def need_elements(axes: list[Axis]) -> None:
    """Raise a ValueError if some window lies in the padding alone."""
    if any(a.count and a.least < 1 for a in axes):
        raise ValueError(f"pad {tuple(a.pad for a in axes)} makes windows that hold no element of x")


def _pooled_shape(shape: tuple[int, ...], axes: list[Axis]) -> tuple[int, ...]:
    """`shape` with as many elements along `axes` as there are windows."""
    counts = {a.axis: a.count for a in axes}
    return tuple(counts.get(i, n) for i, n in enumerate(shape))


def _window_sums(x: Any, axes: list[Axis]) -> Any:
    """The sum over each window: axis by axis, since a sum over a box is a sum of sums."""
    zero = np.zeros((), x.dtype)
    for a in axes:
        padded = lax.pad(x, zero, [(*a.ends, 0) if i == a.axis else (0, 0, 0) for i in range(x.ndim)])
        if a.kernel > 32:  # so many slices would take long to compile
            one = [(a.kernel, a.stride) if i == a.axis else (1, 1) for i in range(x.ndim)]
            x = lax.reduce_window(padded, zero, lax.add, *map(tuple, zip(*one, strict=True)), "VALID")
        else:
            span = (a.count - 1) * a.stride + 1
            slices = [lax.slice_in_dim(padded, k, k + span, a.stride, a.axis) for k in range(a.kernel)]
            x = functools.reduce(lax.add, slices)
    return x


def _per_window(y: Any, axes: list[Axis], margins: list[int]) -> Any:
    """`y` divided by the number of positions that each of its windows has among the elements and margins."""
    for a, margin in zip(axes, margins, strict=True):
        share = 1 / lax.convert_element_type(a.counts(margin), jnp.promote_types(y.dtype, jnp.float32))
        y = y * lax.broadcast_in_dim(lax.convert_element_type(share, y.dtype), y.shape, (a.axis,))
    return y


def _pooled_axes(f: Function) -> tuple[int, int]:
    """How many of the last axes windows lie along, or are of channels behind those."""
    return (len(f.args["kernel"]) + f.args["channel_last"],) * 2


# ---------------------------------------------------------------- maxima


@op(axes=rowwise(_pooled_axes))
def max_pooling(
    x,
    /,
    kernel: Ints,
    stride: Ints | None = None,
    ignore_border: bool = True,
    pad: Ints | None = None,
    channel_last: bool = False,
):
    """Maximum over each window.

    Args:
        x: (*batch, *sizes), or (*batch, *sizes, C) if `channel_last`, with 1 to 3 spatial axes.
        kernel: Size of the windows, one entry per spatial axis.
        stride: Steps between them; `kernel` by default. A single entry, here and below, stands for all axes.
        ignore_border: Whether windows that reach over the far end are left out; else there are as many windows
            as steps, rounded up.
        pad: Padding at both ends of each spatial axis, which is never the maximum; 0 by default.
        channel_last: Whether a channel axis comes behind the spatial ones.

    Returns:
        The shape of x with spatial sizes (n + 2 pad - kernel) // stride + 1, or ceil((n + 2 pad) / stride) if not
        `ignore_border`. The gradient goes to the first maximum of each window.
    """
    axes = windows(x.shape, kernel, stride, ignore_border, pad, channel_last)
    need_elements(axes)
    lowest = -math.inf if is_floating(x) else jnp.iinfo(x.dtype).min
    return lax.reduce_window(x, np.array(lowest, x.dtype), lax.max, *_dimensions(x.ndim, axes))


def _dimensions(ndim: int, axes: list[Axis]) -> tuple[Any, ...]:
    """Sizes, steps and padding of the windows, as XLA wants them."""
    sizes, steps, ends = [1] * ndim, [1] * ndim, [(0, 0)] * ndim
    for a in axes:
        sizes[a.axis], steps[a.axis], ends[a.axis] = a.kernel, a.stride, a.ends
    return tuple(sizes), tuple(steps), tuple(ends)


def _winners(x: Any, axes: list[Axis]) -> Any:
    """For each window the place of its first maximum, counted along the flattened spatial axes."""
    first, last = axes[0].axis, axes[-1].axis + 1
    places = lax.iota(jnp.int32, math.prod(x.shape[first:last])).reshape(x.shape[first:last])
    places = lax.broadcast_in_dim(places, x.shape, range(first, last))
    outside = np.int32(places.size)

    def better(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
        earlier = lax.bitwise_and(lax.eq(a[0], b[0]), lax.lt(b[1], a[1]))
        take = lax.bitwise_or(lax.gt(b[0], a[0]), earlier)
        return lax.select(take, b[0], a[0]), lax.select(take, b[1], a[1])

    lowest = np.array(-math.inf, x.dtype)
    return lax.reduce_window((x, places), (lowest, outside), better, *_dimensions(x.ndim, axes))[1]


def _flat(x: Any, axes: list[Axis]) -> Any:
    """`x` as (batch, places, channels)."""
    first, last = axes[0].axis, axes[-1].axis + 1
    return lax.reshape(x, (math.prod(x.shape[:first]), math.prod(x.shape[first:last]), math.prod(x.shape[last:])))


def _indices(x: Any, axes: list[Axis]) -> tuple[Any, ...]:
    winners = _flat(_winners(x, axes), axes)
    batch, channel = (lax.broadcasted_iota(jnp.int32, winners.shape, axis) for axis in (0, 2))
    return batch, winners, channel


@op(linear=True)
def max_pooling_backward(
    dy,
    x,
    /,
    kernel: Ints,
    stride: Ints | None = None,
    ignore_border: bool = True,
    pad: Ints | None = None,
    channel_last: bool = False,
):
    """The gradient of `max_pooling` at `x`: each element of `dy`, added where its window has its first maximum.

    Linear in `dy`; `x` says where.
    """
    x = floating(x)
    axes = windows(x.shape, kernel, stride, ignore_border, pad, channel_last)
    need_elements(axes)
    expected = _pooled_shape(x.shape, axes)
    if dy.shape != expected:
        raise ValueError(f"dy of shape {dy.shape} is not of the shape {expected} that pooling x gives")
    zeros = _flat(lax.full_like(x, 0, dy.dtype), axes)
    return lax.reshape(zeros.at[_indices(x, axes)].add(_flat(dy, axes), mode="drop"), x.shape)


@op(linear=True)
def max_pooling_select(
    g,
    x,
    /,
    kernel: Ints,
    stride: Ints | None = None,
    ignore_border: bool = True,
    pad: Ints | None = None,
    channel_last: bool = False,
):
    """The elements of `g` at the places where the windows of `x` have their first maxima: the transpose of
    `max_pooling_backward`."""
    x = floating(x)
    axes = windows(x.shape, kernel, stride, ignore_border, pad, channel_last)
    need_elements(axes)
    if g.shape != x.shape:
        raise ValueError(f"g of shape {g.shape} is not of x's shape {x.shape}")
    taken = _flat(g, axes).at[_indices(x, axes)].get(mode="fill", fill_value=0)
    return lax.reshape(taken, _pooled_shape(x.shape, axes))


# ---------------------------------------------------------------- sums and means


@op(linear=True, axes=rowwise(_pooled_axes))
def sum_pooling(
    x,
    /,
    kernel: Ints,
    stride: Ints | None = None,
    ignore_border: bool = True,
    pad: Ints | None = None,
    channel_last: bool = False,
):
    """Sum over each window; arguments and shapes are those of `max_pooling`, and padding counts as zeros."""
    return _window_sums(x, windows(x.shape, kernel, stride, ignore_border, pad, channel_last))


@op(linear=True, axes=rowwise(_pooled_axes))
def average_pooling(
    x,
    /,
    kernel: Ints,
    stride: Ints | None = None,
    ignore_border: bool = True,
    pad: Ints | None = None,
    channel_last: bool = False,
    including_pad: bool = True,
):
    """Mean over each window; arguments and shapes are those of `max_pooling`.

    Args:
        including_pad: Whether the padding counts, as zeros; else a mean is over the elements of x alone. What a
            window of `ignore_border=False` has beyond the padding never counts.
    """
    x = floating(x)
    axes = windows(x.shape, kernel, stride, ignore_border, pad, channel_last)
    if not including_pad:
        need_elements(axes)
    return _per_window(_window_sums(x, axes), axes, [a.pad if including_pad else 0 for a in axes])


@op(linear=True, axes=rowwise(_pooled_axes, shape="shape"))
def sum_pooling_backward(
    dy,
    /,
    shape: Shape,
    kernel: Ints,
    stride: Ints | None = None,
    ignore_border: bool = True,
    pad: Ints | None = None,
    channel_last: bool = False,
):
    """The transpose of `sum_pooling` of an array of `shape`."""
    return _transposed(dy, shape, sum_pooling, kernel, stride, ignore_border, pad, channel_last)


@op(linear=True, axes=rowwise(_pooled_axes, shape="shape"))
def average_pooling_backward(
    dy,
    /,
    shape: Shape,
    kernel: Ints,
    stride: Ints | None = None,
    ignore_border: bool = True,
    pad: Ints | None = None,
    channel_last: bool = False,
    including_pad: bool = True,
):
    """The transpose of `average_pooling` of an array of `shape`."""
    return _transposed(dy, shape, average_pooling, kernel, stride, ignore_border, pad, channel_last, including_pad)


def _transposed(dy: Any, shape: tuple[int, ...], pooling: Any, *arguments: Any) -> Any:
    return transposed(lambda x: pooling.forward(x, *arguments), shape, floating(dy), "dy")


@composite
def global_average_pooling(x, /):
    """Mean over all axes behind the first two: (N, C, *sizes) gives (N, C, 1, ...)."""
    if x.ndim < 3:
        raise ValueError(f"global_average_pooling: x of shape {x.shape} must be (N, C, *sizes)")
    return reduction.mean(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@op(linear=True, axes=rowwise(_pooled_axes))
def unpooling(x, /, kernel: Ints, channel_last: bool = False):
    """Each element repeated `kernel[i]` times along spatial axis i: spatial sizes are multiplied by `kernel`.

    Args:
        x: (*batch, *sizes), or (*batch, *sizes, C) if `channel_last`.
        kernel: One entry for each of 1 to 3 spatial axes.
        channel_last: Whether a channel axis comes behind the spatial ones.
    """
    axes = windows(x.shape, kernel, (1,), False, None, channel_last)
    apart: list[int] = []
    whole, places = [*x.shape], []
    factors = {a.axis: a.kernel for a in axes}
    for i, n in enumerate(x.shape):
        places.append(len(apart))
        apart += [n, factors[i]] if i in factors else [n]
        whole[i] = n * factors.get(i, 1)
    return lax.reshape(lax.broadcast_in_dim(x, apart, places), tuple(whole))
