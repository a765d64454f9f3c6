"""Windows as channels (im2col and col2im), and Chainer's pooling over any number of axes."""

from __future__ import annotations

import math
from typing import Annotated, TypeAlias

import jax
from jax import lax

from ..graph import Array, Variable, composite, op
from ..graph.arguments import AtLeastOne, Ints, Shape, one_of
from . import comparison, indexing, movement, reduction
from .array import arange, zeros_like
from .axes import per_axis, rows
from .pooling import average_pooling, max_pooling
from .pooling_windows import WindowAxis, at_places, check_no_empty_window
from .transposition import transposed

# ---------------------------------------------------------------- windows as channels


@op(linear=True, axes=rows())
def im2col(
    x: Array, /, ksize: Ints, stride: Ints = 1, pad: Ints = 0, cover_all: bool = False, dilate: Ints = 1
) -> jax.Array:
    """The elements of each window as channels: those of the first channel in row-major order, then of the next.

    Args:
        x: (N, C, *sizes).
        ksize: Size of the windows along each spatial axis. A single entry, here and below, applies to all axes.
        stride: Steps between them.
        pad: Zeros added at both ends of each spatial axis.
        cover_all: Whether elements that would be left over get one more window, with zeros beyond the padding.
        dilate: Distances between a window's elements.

    Returns:
        (N, C * prod(ksize), *counts), with (n + 2 pad - dilate (ksize - 1) - 1) / stride + 1 windows along an axis,
        rounded down, or up with `cover_all`.

    Raises:
        ValueError: x has no spatial axis, an argument is out of range, or a window spans more than padded x.
    """
    if x.ndim < 3:
        raise ValueError(f"x must have batch, channel and spatial axes, got shape {x.shape}")
    axes = _windows(x.shape, ksize, stride, pad, cover_all, dilate)
    y = lax.concatenate([lax.expand_dims(part, (2,)) for part in at_places(x, axes, x.dtype.type(0))], 2)
    return lax.reshape(y, (y.shape[0], y.shape[1] * y.shape[2], *y.shape[3:]))


@op(linear=True, axes=rows("shape"))
def col2im(
    y: Array, /, shape: Shape, ksize: Ints, stride: Ints = 1, pad: Ints = 0, cover_all: bool = False, dilate: Ints = 1
) -> jax.Array:
    """Windows given as channels, added where they overlap: the transpose of `im2col`.

    Args:
        y: Of the shape that `im2col` returns.
        shape: The shape of the result, which is that of x.
        ...: As in `im2col`.
    """
    return transposed(lambda x: im2col.forward(x, ksize, stride, pad, cover_all, dilate), shape, y, "y")


def _windows(
    shape: tuple[int, ...], ksize: Ints, stride: Ints, pad: Ints, cover_all: bool, dilate: Ints
) -> list[WindowAxis]:
    """The windows along each axis after the second."""
    count = len(shape) - 2
    result = []
    for i, (n, k, s, p, d) in enumerate(zip(
        shape[2:], per_axis(ksize, "ksize", count, 1, 1), per_axis(stride, "stride", count, 1, 1),
        per_axis(pad, "pad", count, 0, 0), per_axis(dilate, "dilate", count, 1, 1), strict=True,
    )):
        span = d * (k - 1) + 1
        if span > n + 2 * p:
            raise ValueError(f"ksize {ksize} with dilate {dilate} spans {span}, more than the {n + 2 * p} of padded x")
        number = (n + 2 * p - span + (s - 1 if cover_all else 0)) // s + 1
        result.append(WindowAxis(i + 2, n, k, s, p, number, d))
    return result


# ---------------------------------------------------------------- pooling


@composite
def max_pooling_nd(
    x: Array, /, ksize: Ints, stride: Ints | None = None, pad: Ints = 0, cover_all: bool = True,
    return_indices: bool = False,
) -> Variable | tuple[Variable, Variable]:
    """Maximum over each window along all axes after the second.

    Args:
        x: (N, C, *sizes).
        ksize: Size of the windows. A single entry, here and below, applies to all axes.
        stride: Steps between them; `ksize` by default.
        pad: Padding at both ends of each axis, which is never the maximum.
        cover_all: Whether elements that would be left over get one more window.
        return_indices: Whether to return (y, indices), where an index is the position of the first maximum within its
            window, in row-major order.

    Returns:
        (N, C, *counts), with counts as in `im2col`.

    Raises:
        ValueError: As in `im2col`, or some window has no element of x.
    """
    ksize, stride, pad = _each(x, ksize, stride, pad)
    axes = _windows(x.shape, ksize, stride, pad, cover_all, 1)
    check_no_empty_window(axes)
    # The margin after may be narrower than that before, where elements are left over.
    lowest = -math.inf if x.spec.differentiable else -(2 ** (8 * x.dtype.itemsize - 1))
    widths = [w for before, after in (a.ends for a in axes) for w in (before, max(after, 0))]
    wide = movement.pad(x, tuple(widths), constant_value=lowest) if any(widths) else x
    y = max_pooling(wide, kernel=ksize, stride=stride)
    if not return_indices:
        return y
    columns = movement.reshape(
        im2col(wide, ksize=ksize, stride=stride), shape=(*y.shape[:2], math.prod(ksize), *y.shape[2:])
    )
    return y, reduction.argmax(columns, axis=2)


@composite
def max_pooling_1d(
    x: Array, /, ksize: Ints, stride: Ints | None = None, pad: Ints = 0, cover_all: bool = True,
    return_indices: bool = False,
) -> Variable | tuple[Variable, Variable]:
    """Maximum over each window along the third of three axes.

    Args:
        x: (N, C, L).
        ...: As in `max_pooling_nd`.

    Raises:
        ValueError: As in `max_pooling_nd`, or x does not have three axes.
    """
    _check_three_axes(x)
    return max_pooling_nd.body(x, ksize, stride, pad, cover_all, return_indices)


PadValue: TypeAlias = Annotated[float, one_of(0)]


@composite
def average_pooling_nd(
    x: Array, /, ksize: Ints, stride: Ints | None = None, pad: Ints = 0, pad_value: PadValue | None = 0
) -> Variable:
    """Mean over each window along all axes after the second.

    Args:
        pad: Padding at both ends of each axis.
        pad_value: 0 if the padding counts, as zeros; None to average the elements of x alone.
        ...: As in `max_pooling_nd`.

    Returns:
        (N, C, *counts), with counts as in `im2col`.

    Raises:
        ValueError: As in `im2col`; a window has no element that counts, or `pad_value` is neither 0 nor None.
    """
    ksize, stride, pad = _each(x, ksize, stride, pad)
    return average_pooling(x, kernel=ksize, stride=stride, pad=pad, including_pad=pad_value is not None)


@composite
def average_pooling_1d(
    x: Array, /, ksize: Ints, stride: Ints | None = None, pad: Ints = 0, pad_value: PadValue | None = 0
) -> Variable:
    """Mean over each window along the third of three axes.

    Args:
        x: (N, C, L).
        ...: As in `average_pooling_nd`.

    Raises:
        ValueError: As in `average_pooling_nd`, or x does not have three axes.
    """
    _check_three_axes(x)
    return average_pooling_nd.body(x, ksize, stride, pad, pad_value)


def _check_three_axes(x: Variable) -> None:
    if x.ndim != 3:
        raise ValueError(f"x must have 3 axes, got shape {x.shape}")


def _each(
    x: Variable, ksize: Ints, stride: Ints | None, pad: Ints
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Sizes, steps and padding of the windows, one for each spatial axis."""
    count = x.ndim - 2
    if count < 1:
        raise ValueError(f"x must have batch, channel and spatial axes, got shape {x.shape}")
    sizes = per_axis(ksize, "ksize", count, 1, 1)
    steps = sizes if stride is None else per_axis(stride, "stride", count, 1, 1)
    return sizes, steps, per_axis(pad, "pad", count, 0, 0)


@composite
def spatial_pyramid_pooling_2d(
    x: Array, /, pyramid_height: AtLeastOne, pooling: Annotated[str, one_of("max")] | None = None
) -> Variable:
    """Maxima over grids of 1, 4, 16, ... windows that cover `x`, concatenated (He et al., 2014).

    Args:
        x: (N, C, H, W).
        pyramid_height: Number of grids.
        pooling: "max", the only choice.

    Returns:
        (N, C * (4^pyramid_height - 1) / 3, 1, 1).

    Raises:
        ValueError: x does not have four axes, `pyramid_height` is below 1 or gives empty windows, or `pooling` is not
            "max".
    """
    if x.ndim != 4 or 0 in x.shape[2:]:
        raise ValueError(f"x must be of shape (N, C, H, W) with nonempty images, got {x.shape}")
    grids = []
    for bins in [2**level for level in range(pyramid_height)]:
        sizes = tuple([-(-n // bins) for n in x.shape[2:]])
        pads = tuple([(k * bins - n) // 2 for k, n in zip(sizes, x.shape[2:], strict=True)])
        try:
            grid = max_pooling_nd.body(x, sizes, None, pads, True, False)
        except ValueError as error:
            raise ValueError(f"pyramid_height {pyramid_height}: {error}") from None
        assert isinstance(grid, Variable)
        grids.append(movement.reshape(grid, shape=(x.shape[0], -1, 1, 1)))
    return movement.concatenate(*grids, axis=1)


@composite
def upsampling_2d(
    x: Array, indexes: Array, /, ksize: Ints, stride: Ints | None = None, pad: Ints = 0, outsize: Ints | None = None,
    cover_all: bool = True,
) -> Variable:
    """Max unpooling: each element at the index that `max_pooling_nd` returned with `return_indices`; zeros elsewhere.

    Args:
        x: (N, C, h, w).
        indexes: The positions within the windows, of the shape of x.
        outsize: The spatial sizes of the result; by default the smallest that give (h, w) windows.
        ...: As in `max_pooling_nd`.

    Returns:
        (N, C, *outsize). Elements at the same position add up.

    Raises:
        ValueError: The shapes do not fit, or an argument is out of range.
    """
    if x.ndim != 4 or indexes.shape != x.shape:
        raise ValueError(f"x and indexes must have the same shape of 4 axes, got {x.shape} and {indexes.shape}")
    ksize, stride, pad = _each(x, ksize, stride, pad)
    least = [
        s * (n - 1) + k - (s - 1 if cover_all else 0) - 2 * p
        for n, k, s, p in zip(x.shape[2:], ksize, stride, pad, strict=True)
    ]
    sizes = per_axis(tuple(least) if outsize is None else outsize, "outsize", 2, 1, 1)
    places = movement.reshape(arange(0, math.prod(ksize)), shape=(1, 1, -1, 1, 1))
    apart = movement.reshape(x, shape=(*x.shape[:2], 1, *x.shape[2:]))
    here = comparison.equal(movement.reshape(indexes, shape=apart.shape), places)
    columns = movement.reshape(indexing.where(here, apart, zeros_like(apart)), shape=(x.shape[0], -1, *x.shape[2:]))
    return col2im(columns, shape=(*x.shape[:2], *sizes), ksize=ksize, stride=stride, pad=pad, cover_all=cover_all)
