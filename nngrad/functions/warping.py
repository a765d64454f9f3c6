"""Sampling images at computed positions: spatial transformers and optical flow.

Positions count pixels from the centre of the first one. Between pixels an image is linear along each axis, so a sample
is a weighted sum of the corners of the *cell* that contains the position. The index of the cell has no derivative. The
position within the cell has the derivative 1, or -1 in a reflection, or 0 where positions are clamped to the edge. So
the derivative at a pixel is that of the cell after it. With the cubic kernel a sample sums four pixels along each axis,
two on either side, and only from the second derivative on does it matter which cell a pixel belongs to.
"""

from __future__ import annotations

import itertools
import math
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..graph import Array, Variable, as_variable, composite, op
from ..graph.arguments import Ints, as_ints, one_of
from ..graph.leaf import refuse_too_many
from .arithmetic import add2, floating, mul2, r_sub_scalar
from .array import cast, constant
from .axes import rows
from .contractions import contraction
from .movement import concatenate, reshape, transpose
from .slicing import take_slices
from .weighted_points import weighted_points

PADDINGS = ("zero", "repeat", "reflect", "mirror")

# ---------------------------------------------------------------- cells


@op(diagonal=True)
def cell_fraction(x: Array, /, size: int, padding: str) -> jax.Array:
    """The position within its cell along an axis: from 0 at its first corner to 1 at its last.

    Args:
        x: Positions, of any shape and floating dtype.
        size: The number of pixels along the axis.
        padding: The image beyond its pixels: 'zero', zeros; 'repeat', the last pixel repeated; 'mirror', the image
            reflected, with the last pixel once; 'reflect', the same with the last pixel twice.

    Raises:
        ValueError: `padding` is unknown.
    """
    held, _ = _mapped(floating(x), size, padding)
    return lax.sub(held, _first_corner(held, size, padding))


@op(diagonal=True)
def cell_slope(x: Array, /, size: int, padding: str) -> jax.Array:
    """The derivative of `cell_fraction`: 1, -1 where the image is reflected, 0 where the last pixel is repeated.

    Args:
        ...: As in `cell_fraction`.
    """
    return _mapped(floating(x), size, padding)[1]


@op(axes=rows())
def cell_indices(x: Array, /, sizes: Ints, padding: str, mode: str = "linear") -> jax.Array:
    """The pixels at the corners of the cells of positions, or those around them, numbered in row-major order.

    Args:
        x: Positions (batch, Q, D), with the last axis of the image first, so x before y.
        sizes: The D sizes of the image, also with the last axis first.
        mode: 'linear' for the corners; 'nearest' for the nearest pixel alone, of two equally near ones the one farther
            from 0; 'cubic' for the corners and their neighbours along each axis.
        ...: As in `cell_fraction`.

    Returns:
        int32 (batch, n^D, Q) with n = 2, 1 or 4: -1 outside of the image. A pixel's number has a digit for each axis, 0
        for the first one along it; the first axis is most significant.

    Raises:
        ValueError: x does not have three axes, the last with an entry for each of `sizes`, or `padding` is unknown.
    """
    sizes = as_ints(sizes)
    if x.ndim != 3 or x.shape[2] != len(sizes):
        raise ValueError(f"x must be of shape (batch, Q, {len(sizes)}) for sizes {sizes}, got {x.shape}")
    along = []
    for d, size in enumerate(sizes):
        at = floating(lax.index_in_dim(x, d, 2, keepdims=False))
        held, _ = _mapped(at, size, padding)
        if mode == "cubic":
            first = lax.floor(at)
            corners = [_mapped(first + lax.full_like(first, i), size, padding)[0] for i in (-1, 0, 1, 2)]
        elif mode == "nearest":
            half = lax.full_like(held, 0.5)
            away = lax.select(lax.lt(held, lax.full_like(held, 0)), lax.ceil(held - half), lax.floor(held + half))
            corners = [away]
        else:
            first = _first_corner(held, size, padding)
            corners = [first, first + lax.full_like(first, 1)]
        along.append([_as_index(along_axis, size) for along_axis in corners])
    numbers = []
    for corner in itertools.product(*reversed(along)):
        place, inside = lax.full_like(corner[0], 0), lax.full(corner[0].shape, True)
        for along_axis, size in zip(corner, reversed(sizes), strict=True):
            place = lax.add(lax.mul(place, lax.full_like(place, size)), along_axis)
            inside = inside & (along_axis >= 0) & (along_axis < size)
        numbers.append(lax.expand_dims(lax.select(inside, place, lax.full_like(place, -1)), (1,)))
    return lax.concatenate(numbers, 1)


def _mapped(x: jax.Array, size: int, padding: str) -> tuple[jax.Array, jax.Array]:
    """Positions mapped into the image as `padding` says, and the derivative of that map."""
    one, zero = lax.full_like(x, 1), lax.full_like(x, 0)
    if padding == "zero":
        return x, one
    slope = one
    if padding in ("mirror", "reflect"):
        edge = 0.5 if padding == "reflect" else 0.0
        length = size - 1 + 2 * edge
        if length == 0:
            return zero, zero
        far = x + lax.full_like(x, edge)
        far = far - lax.floor(far / lax.full_like(x, 2 * length)) * lax.full_like(x, 2 * length)
        ahead = far < lax.full_like(x, length)
        x = lax.select(ahead, far, lax.full_like(x, 2 * length) - far) - lax.full_like(x, edge)
        slope = lax.select(ahead, one, -one)
    elif padding != "repeat":
        raise ValueError(f"padding must be one of {', '.join(map(repr, PADDINGS))}, got {padding!r}")
    last = lax.full_like(x, size - 1)
    between = (x >= zero) & ((x <= last) if padding == "mirror" else (x < last))
    return lax.clamp(zero, x, last), lax.select(between, slope, zero)


def _first_corner(held: jax.Array, size: int, padding: str) -> jax.Array:
    first = lax.floor(held)
    return first if padding == "zero" else lax.min(first, lax.full_like(first, max(size - 2, 0)))


def _as_index(x: jax.Array, size: int) -> jax.Array:
    """`x` as int32; numbers far outside of the image stay outside."""
    return lax.convert_element_type(lax.clamp(lax.full_like(x, -1), x, lax.full_like(x, size)), jnp.int32)


def sampled(
    x: Variable, positions: Variable, sizes: tuple[int, ...], padding: str, mode: str, channel_last: bool,
    factor: Variable | None = None,
) -> Variable:
    """Images (batch, C, pixels), or (batch, pixels, C), with spatial `sizes`, sampled at positions (batch, Q, D), times
    a factor (batch, 1, Q) for each sample if there is one."""
    backwards = sizes[::-1]
    indices = cell_indices(positions, sizes=backwards, padding=padding, mode=mode)
    batch, count = positions.shape[:2]
    weights = constant(1, shape=(batch, 1, count), dtype=positions.dtype) if factor is None else factor
    for d, size in enumerate(() if mode == "nearest" else backwards):
        along = take_slices(positions, key=((0, batch, 1), (0, count, 1), d))
        fraction = cell_fraction(along, size=size, padding="zero" if mode == "cubic" else padding)
        fraction = reshape(fraction, shape=(batch, 1, 1, count))
        kernel = _cubic(fraction) if mode == "cubic" else concatenate(r_sub_scalar(fraction, val=1), fraction, axis=1)
        taps = weights.shape[1]
        weights = kernel if d == 0 and factor is None else mul2(kernel, reshape(weights, shape=(batch, 1, taps, count)))
        weights = reshape(weights, shape=(batch, kernel.shape[1] * taps, count))
    y: Variable = weighted_points(x, weights, indices, channel_last=channel_last)
    return y


def _cubic(t: Variable) -> Variable:
    """The weights of cubic convolution (Keys 1981) with a = -0.75, of four pixels around a position t in its cell."""
    powers = concatenate(t * t * t, t * t, t, axis=1)
    kernel = np.array([[-0.75, 1.5, -0.75], [1.25, -2.25, 0], [-1.25, 1.5, 0.75], [0.75, -0.75, 0]])
    y = contraction(_constant(kernel, t), powers, terms=((0, 1), (2, 1, 3, 4)), output=(2, 0, 3, 4))
    return add2(y, _constant(np.array([0, 1, 0, 0]).reshape(4, 1, 1), t))


# ---------------------------------------------------------------- nnabla's functions


@composite
def affine_grid(theta: Array, /, size: Ints, align_corners: bool = False) -> Variable:
    """Affine transforms of the positions of an image's pixels: a grid for `warp_by_grid`.

    Positions range from -1 to 1 along each axis, x before y; a single pixel along an axis is at 0.

    Args:
        theta: (batch, 2, 3) or (batch, 3, 4): matrices, with the translation in the last column.
        size: (height, width), or (depth, height, width), of the image that the grid is for.
        align_corners: Whether -1 and 1 are the centres of the first and last pixels instead of their outer edges.

    Returns:
        (batch, height, width, 2), or (batch, depth, height, width, 3).

    Raises:
        ValueError: `size` does not have 2 or 3 entries, all at least 1, or the shape of `theta` does not fit.
    """
    size = as_ints(size)
    count = len(size)
    if count not in (2, 3) or min(size) < 1:
        raise ValueError(f"size must be (height, width) or (depth, height, width), all at least 1, got {size}")
    if theta.ndim != 3 or theta.shape[1:] != (count, count + 1):
        raise ValueError(f"theta must be of shape (batch, {count}, {count + 1}) for size {size}, got {theta.shape}")
    refuse_too_many((count + 1) * math.prod(size), size=size)
    along = [(2 * np.arange(n) + 1 - n) / (max(n - 1, 1) if align_corners else n) for n in size]
    mesh = [*np.meshgrid(*along, indexing="ij")][::-1]
    points = np.stack([*mesh, np.ones(size)], -1).reshape(-1, count + 1)
    y = contraction(theta, _constant(points, theta), terms=((0, 1, 2), (3, 2)), output=(0, 3, 1))
    return reshape(y, shape=(theta.shape[0], *size, count))


def _constant(values: np.ndarray, like: Variable) -> Variable:
    """A leaf in the dtype of `like`, if that is floating."""
    return as_variable(values.astype(like.dtype if like.spec.differentiable else np.float32))


@composite
def warp_by_grid(
    x: Array, grid: Array, /, mode: Annotated[str, one_of("linear", "nearest", "cubic")] = "linear",
    padding_mode: Annotated[str, one_of("zero", "repeat", "reflect")] = "zero", align_corners: bool = False,
    channel_last: bool = False,
) -> Variable:
    """Images sampled at the positions of a grid, as in spatial transformers (Jaderberg et al. 2015).

    With 'linear' it is differentiable to any order in both. As a function of the grid it is a polynomial on each cell
    between pixels, linear along each axis, so only mixed second derivatives are not 0. At a pixel the derivative is
    that of the cell after it, and 0 where the last pixel is repeated. With 'cubic' it is a cubic along each axis, with
    a continuous derivative. With 'nearest' the grid has no gradient.

    Args:
        x: (batch, C, *sizes), or (batch, *sizes, C) if `channel_last`, with 2 or 3 spatial axes.
        grid: (batch, *output sizes, 2 or 3): the position of each element of the result, x before y before z, from -1
            to 1 as in `affine_grid`. 16-bit grids are processed in float32.
        mode: 'linear'; 'nearest'; or 'cubic', cubic convolution (Keys 1981) with a = -0.75: of its 4 pixels along an
            axis, those outside of the image are as `padding_mode` says.
        padding_mode: The image beyond its edges: 'zero', zeros; 'repeat', the last pixel; 'reflect', the image
            reflected, at the centre of the last pixel if `align_corners`, else at its edge.
        channel_last: Whether the channel axis of `x` and of the result is the last.
        ...: As in `affine_grid`.

    Returns:
        (batch, C, *output sizes), or (batch, *output sizes, C).

    Raises:
        ValueError: The shapes do not fit, a spatial axis of x is empty, or a mode is unknown.
    """
    count = x.ndim - 2
    if count not in (2, 3) or grid.ndim != x.ndim or grid.shape[-1] != count or grid.shape[0] != x.shape[0]:
        raise ValueError("x and grid must be of shape (batch, C, *sizes) and (batch, *output sizes, number of sizes), "
                         f"with 2 or 3 sizes, got {x.shape} and {grid.shape}")
    sizes = x.shape[1:-1] if channel_last else x.shape[2:]
    if min(sizes) < 1:
        raise ValueError(f"x must have nonempty spatial axes, got shape {x.shape}")
    padding = "mirror" if padding_mode == "reflect" and align_corners else padding_mode
    batch, outputs = x.shape[0], grid.shape[1:-1]
    grid = reshape(_wide(grid), shape=(batch, math.prod(outputs), count))
    middle = np.array([(n - 1) / 2 for n in reversed(sizes)])
    reach = middle if align_corners else middle + 0.5
    positions = add2(mul2(grid, _constant(reach, grid)), _constant(middle, grid))
    return warped(x, positions, sizes, outputs, padding, mode, channel_last)


@composite
def warp_by_flow(data: Array, flow: Array, /) -> Variable:
    """Images whose pixels are sampled at positions displaced by a flow, with linear interpolation.

    Beyond the image its last pixels are repeated. It is differentiable to any order in both inputs, as `warp_by_grid`.

    Args:
        data: (batch, C, height, width).
        flow: (batch, 2, height, width), in pixels: the displacement to the right, then downwards. 16-bit flows are
            processed in float32.

    Returns:
        Of the shape of `data`.

    Raises:
        ValueError: The shapes do not fit, or an image is empty.
    """
    if data.ndim != 4 or flow.shape != (data.shape[0], 2, *data.shape[2:]) or min(data.shape[2:]) < 1:
        raise ValueError("data and flow must be of shape (batch, C, height, width) and (batch, 2, height, width), got "
                         f"{data.shape} and {flow.shape}")
    sizes = data.shape[2:]
    count = math.prod(sizes)
    moved = transpose(reshape(_wide(flow), shape=(data.shape[0], 2, count)), axes=(0, 2, 1))
    rows, columns = np.divmod(np.arange(count), sizes[1])
    positions = add2(moved, _constant(np.stack([columns, rows], 1), moved))
    return warped(data, positions, sizes, sizes, "repeat", "linear", False)


def _wide(x: Variable) -> Variable:
    """Positions as float32 if they are integers or have 16 bits, which cannot distinguish the pixels of an image."""
    return x if x.dtype in (np.float32, np.float64) else cast(x, np.float32)


def warped(
    x: Variable, positions: Variable, sizes: tuple[int, ...], outputs: tuple[int, ...], padding: str, mode: str,
    channel_last: bool,
) -> Variable:
    """Images sampled at positions (batch, Q, D), with Q reshaped to the axes `outputs` of the result."""
    batch, channels = x.shape[0], x.shape[-1] if channel_last else x.shape[1]
    pixels = (batch, math.prod(sizes), channels) if channel_last else (batch, channels, math.prod(sizes))
    y = sampled(reshape(x, shape=pixels), positions, sizes, padding, mode, channel_last)
    y = reshape(y, shape=(batch, *outputs, channels) if channel_last else (batch, channels, *outputs))
    return cast(y, x.dtype) if x.dtype.itemsize == 2 else y
