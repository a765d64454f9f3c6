"""Convolutions with a kernel of its own at each place, the product of a vertical and a horizontal one.

Four arrays make one number, linear in each: the sum over all b, c, i, j, r, s of
y[b, c, r, s] x[b, c, r + j, s + i] v[b, j, r, s] h[b, i, r, s]. Its derivative in each one is an op of the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..graph import Array, Function, op
from ..graph.axes import rows_of
from .arithmetic import alike, floating
from .transposition import transposed


def _sizes(x: Any, y: tuple[int, ...], v: Any, h: Any) -> None:
    """Raise a ValueError if there is no such sum of these shapes."""
    batch, channels, *sizes = y
    wide = (batch, channels, sizes[0] + v[1] - 1, sizes[1] + h[1] - 1)
    if (x, v, h) != (wide, (batch, v[1], *sizes), (batch, h[1], *sizes)) or min(v[1], h[1]) < 1:
        raise ValueError(
            f"x of shape {x}, vertical_kernel {v}, horizontal_kernel {h} and results {y} do not fit: they must be "
            "(B, C, H + J - 1, W + I - 1), (B, J, H, W), (B, I, H, W) and (B, C, H, W)"
        )


def _need_four_axes(**arrays: Any) -> None:
    for name, array in arrays.items():
        if array.ndim != 4:
            raise ValueError(f"{name} of shape {array.shape} must have 4 axes")


def _separable_cost(f: Function) -> int:
    """Two for each element of the result and of its kernel: x is the largest of the arrays, and the first one has its
    channels."""
    shapes = [x.shape for x in f.inputs] + [f.specs[0].shape]
    cost = 2 * math.prod(shapes[0][:2])
    for sizes in zip(*[shape[2:] for shape in shapes], strict=True):
        cost *= min(sizes) * (max(sizes) - min(sizes) + 1)
    return cost


def _summed(term: Callable[[Any, Any], Any], parts: jax.Array, zeros: jax.Array) -> jax.Array:
    """The sum of `term(i, parts[i])`, in a loop if there are many."""
    total = zeros
    if len(parts) <= _MOST_TERMS:
        for i in range(len(parts)):
            total = total + term(i, lax.index_in_dim(parts, i, keepdims=False))
        return total
    total, _ = lax.scan(lambda y, part: (y + term(*part), None), zeros, (lax.iota(jnp.int32, len(parts)), parts))
    return total


_MOST_TERMS = 6


@op(linear="each", axes=rows_of((0, 1, 2)), cost=_separable_cost)
def adaptive_separable_convolution(x: Array, vertical_kernel: Array, horizontal_kernel: Array, /) -> jax.Array:
    """Convolution with a kernel of its own at each place, the outer product of a vertical and a horizontal one.

    `y[b, c, r, s]` is the sum over j and i of
    `vertical_kernel[b, j, r, s] * horizontal_kernel[b, i, r, s] * x[b, c, r + j, s + i]` (Niklaus et al., 2017).

    Args:
        x: (B, C, H + J - 1, W + I - 1).
        vertical_kernel: (B, J, H, W).
        horizontal_kernel: (B, I, H, W).

    Returns:
        (B, C, H, W).

    Raises:
        ValueError: The shapes do not fit.
    """
    _need_four_axes(x=x, vertical_kernel=vertical_kernel, horizontal_kernel=horizontal_kernel)
    x, v, h = alike(floating(x), floating(vertical_kernel), floating(horizontal_kernel))
    batch, channels = x.shape[:2]
    sizes = v.shape[2:]
    _sizes(x.shape, (batch, channels, *sizes), v.shape, h.shape)
    dtype, accurate = x.dtype, jnp.promote_types(x.dtype, jnp.float32)
    x, v, h = (lax.convert_element_type(each, accurate) for each in (x, v, h))
    # One product of the size of the result at a time: all of them together would be J times I as large.
    vs, hs = (lax.transpose(each, (1, 0, 2, 3))[:, :, None] for each in (v, h))
    zeros = lax.full((batch, channels, *sizes), 0, accurate)

    def of_row(j: Any, vertical: Any) -> Any:
        below = lax.dynamic_slice_in_dim(x, j, sizes[0], axis=2)
        line = _summed(lambda i, horizontal: horizontal * lax.dynamic_slice_in_dim(below, i, sizes[1], 3), hs, zeros)
        return vertical * line

    y: jax.Array = _summed(of_row, vs, zeros)
    return lax.convert_element_type(y, dtype)


@op(linear="each", axes=rows_of((0, 1, 2)), cost=_separable_cost)
def separable_data_grad(
    y: Array, vertical_kernel: Array, horizontal_kernel: Array, /
) -> jax.Array:
    """The transpose of `adaptive_separable_convolution` in x.

    Args:
        y: (B, C, H, W).
        vertical_kernel: (B, J, H, W).
        horizontal_kernel: (B, I, H, W).

    Returns:
        (B, C, H + J - 1, W + I - 1).

    Raises:
        ValueError: The shapes do not fit.
    """
    _need_four_axes(y=y, vertical_kernel=vertical_kernel, horizontal_kernel=horizontal_kernel)
    y, v, h = alike(floating(y), floating(vertical_kernel), floating(horizontal_kernel))
    wide = (*y.shape[:2], y.shape[2] + v.shape[1] - 1, y.shape[3] + h.shape[1] - 1)
    return transposed(lambda x: adaptive_separable_convolution.forward(x, v, h), wide, y, "y")


@op(linear="each", axes=rows_of((0, 1, 2)), cost=_separable_cost)
def separable_vertical_grad(y: Array, x: Array, horizontal_kernel: Array, /) -> jax.Array:
    """The transpose of `adaptive_separable_convolution` in the vertical kernel.

    Args:
        y: (B, C, H, W).
        x: (B, C, H + J - 1, W + I - 1).
        horizontal_kernel: (B, I, H, W).

    Returns:
        (B, J, H, W).

    Raises:
        ValueError: The shapes do not fit.
    """
    _need_four_axes(y=y, x=x, horizontal_kernel=horizontal_kernel)
    y, x, h = alike(floating(y), floating(x), floating(horizontal_kernel))
    shape = (y.shape[0], x.shape[2] - y.shape[2] + 1, *y.shape[2:])
    _sizes(x.shape, y.shape, shape, h.shape)
    return transposed(lambda v: adaptive_separable_convolution.forward(x, v, h), shape, y, "y")


@op(linear="each", axes=rows_of((0, 1, 2)), cost=_separable_cost)
def separable_horizontal_grad(y: Array, x: Array, vertical_kernel: Array, /) -> jax.Array:
    """The transpose of `adaptive_separable_convolution` in the horizontal kernel.

    Args:
        y: (B, C, H, W).
        x: (B, C, H + J - 1, W + I - 1).
        vertical_kernel: (B, J, H, W).

    Returns:
        (B, I, H, W).

    Raises:
        ValueError: The shapes do not fit.
    """
    _need_four_axes(y=y, x=x, vertical_kernel=vertical_kernel)
    y, x, v = alike(floating(y), floating(x), floating(vertical_kernel))
    shape = (y.shape[0], x.shape[3] - y.shape[3] + 1, *y.shape[2:])
    _sizes(x.shape, y.shape, v.shape, shape)
    return transposed(lambda h: adaptive_separable_convolution.forward(x, v, h), shape, y, "y")
