"""Adaptive separable convolution: at each position its own kernel, the product of a vertical and a horizontal one.

It derives from a scalar that is linear in each of four arrays: the sum over all b, c, i, j, r, s of y[b, c, r, s] x[b,
c, r + j, s + i] v[b, j, r, s] h[b, i, r, s]. The derivative with respect to each array is an op of the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..graph import Array, Function, op
from .arithmetic import alike, floating
from .axes import rows_of


def _sizes(x: Any, y: tuple[int, ...], v: Any, h: Any) -> None:
    """Raise a ValueError unless the shapes fit such a sum."""
    batch, channels, *sizes = y
    wide = (batch, channels, sizes[0] + v[1] - 1, sizes[1] + h[1] - 1)
    if (x, v, h) != (wide, (batch, v[1], *sizes), (batch, h[1], *sizes)) or min(v[1], h[1]) < 1:
        raise ValueError(
            "x, vertical_kernel, horizontal_kernel and results must be of shape (B, C, H + J - 1, W + I - 1), "
            f"(B, J, H, W), (B, I, H, W) and (B, C, H, W), got {x}, {v}, {h} and {y}"
        )


def _check_four_axes(**arrays: Any) -> None:
    for name, array in arrays.items():
        if array.ndim != 4:
            raise ValueError(f"{name} must have 4 axes, got shape {array.shape}")


def _separable_cost(f: Function) -> int:
    """Two operations for each element of the result and of its kernel: x is the largest array, and the first one has
    its channels."""
    shapes = [x.shape for x in f.inputs] + [f.specs[0].shape]
    cost = 2 * math.prod(shapes[0][:2])
    for sizes in zip(*[shape[2:] for shape in shapes], strict=True):
        cost *= min(sizes) * (max(sizes) - min(sizes) + 1)
    return cost


def _fold(parts: Any, total: jax.Array, step: Callable[[Any, Any, Any], Any]) -> jax.Array:
    """`total` after `step(total, i, parts[i])` for each part in turn, in a loop if there are many. Only one product of
    the size of the result exists at a time; there is one for each element of a kernel."""
    if len(parts) <= _MOST_STEPS:
        for i in range(len(parts)):
            total = step(total, i, lax.index_in_dim(parts, i, keepdims=False))
        return total
    total, _ = lax.scan(lambda y, part: (step(y, *part), None), total, (lax.iota(jnp.int32, len(parts)), parts))
    return total


_MOST_STEPS = 6


def _kernels_first(kernels: jax.Array) -> jax.Array:
    """(B, J, H, W) as (J, B, 1, H, W)."""
    return lax.expand_dims(lax.transpose(kernels, (1, 0, 2, 3)), (2,))


def _convolved_rows(x: jax.Array, horizontal: jax.Array, j: Any, zeros: jax.Array) -> jax.Array:
    """`x` from row `j` on, convolved along its rows."""
    below = lax.dynamic_slice_in_dim(x, j, zeros.shape[2], axis=2)
    return _fold(horizontal, zeros, lambda line, i, h: line + h * lax.dynamic_slice_in_dim(below, i, zeros.shape[3], 3))


def _accurate(*arrays: Array) -> tuple[Any, Any]:
    """The arrays in a dtype accurate enough for sums of many products, and their common dtype."""
    together = alike(*[floating(each) for each in arrays])
    dtype = jnp.promote_types(together[0].dtype, jnp.float32)
    return [lax.convert_element_type(each, dtype) for each in together], together[0].dtype


@op(linear="each", axes=rows_of((0, 1, 2)), cost=_separable_cost, precision="low")
def adaptive_separable_convolution(x: Array, vertical_kernel: Array, horizontal_kernel: Array, /) -> jax.Array:
    """Convolution with its own kernel at each position: the outer product of a vertical and a horizontal one.

    `y[b, c, r, s]` is the sum over j and i of
    `vertical_kernel[b, j, r, s] * horizontal_kernel[b, i, r, s] * x[b, c, r + j, s + i]` (Niklaus et al., 2017).

    Args:
        x: (B, C, H + J - 1, W + I - 1).
        vertical_kernel: (B, J, H, W).
        horizontal_kernel: (B, I, H, W).

    Returns:
        (B, C, H, W).
    """
    _check_four_axes(x=x, vertical_kernel=vertical_kernel, horizontal_kernel=horizontal_kernel)
    (x, v, h), dtype = _accurate(x, vertical_kernel, horizontal_kernel)
    _sizes(x.shape, (*x.shape[:2], *v.shape[2:]), v.shape, h.shape)
    zeros = lax.full((*x.shape[:2], *v.shape[2:]), 0, x.dtype)
    horizontal = _kernels_first(h)
    y = _fold(_kernels_first(v), zeros, lambda y, j, row: y + row * _convolved_rows(x, horizontal, j, zeros))
    return lax.convert_element_type(y, dtype)


@op(linear="each", axes=rows_of((0, 1, 2)), cost=_separable_cost, precision="low")
def separable_data_grad(y: Array, vertical_kernel: Array, horizontal_kernel: Array, /) -> jax.Array:
    """The transpose of `adaptive_separable_convolution` in x.

    Args:
        y: (B, C, H, W).
        vertical_kernel: (B, J, H, W).
        horizontal_kernel: (B, I, H, W).

    Returns:
        (B, C, H + J - 1, W + I - 1).
    """
    _check_four_axes(y=y, vertical_kernel=vertical_kernel, horizontal_kernel=horizontal_kernel)
    (y, v, h), dtype = _accurate(y, vertical_kernel, horizontal_kernel)
    batch, channels, height, width = y.shape
    _sizes((batch, channels, height + v.shape[1] - 1, width + h.shape[1] - 1), y.shape, v.shape, h.shape)
    horizontal = _kernels_first(h)
    line = lax.full((batch, channels, height, width + h.shape[1] - 1), 0, y.dtype)

    def with_row(x: Any, j: Any, row: Any) -> Any:
        spread = _fold(horizontal, line, lambda x, i, h: _added(x, h * (row * y), i, 3))
        return _added(x, spread, j, 2)

    x = lax.full((batch, channels, height + v.shape[1] - 1, line.shape[3]), 0, y.dtype)
    return lax.convert_element_type(_fold(_kernels_first(v), x, with_row), dtype)


def _added(x: jax.Array, part: jax.Array, start: Any, axis: int) -> jax.Array:
    """`x` with `part` added from `start` on along an axis."""
    before = lax.dynamic_slice_in_dim(x, start, part.shape[axis], axis)
    return lax.dynamic_update_slice_in_dim(x, before + part, start, axis)


@op(linear="each", axes=rows_of((0, 1, 2)), cost=_separable_cost, precision="low")
def separable_vertical_grad(y: Array, x: Array, horizontal_kernel: Array, /) -> jax.Array:
    """The transpose of `adaptive_separable_convolution` in the vertical kernel.

    Args:
        y: (B, C, H, W).
        x: (B, C, H + J - 1, W + I - 1).
        horizontal_kernel: (B, I, H, W).

    Returns:
        (B, J, H, W).
    """
    _check_four_axes(y=y, x=x, horizontal_kernel=horizontal_kernel)
    (y, x, h), dtype = _accurate(y, x, horizontal_kernel)
    rows = x.shape[2] - y.shape[2] + 1
    _sizes(x.shape, y.shape, (y.shape[0], rows, *y.shape[2:]), h.shape)
    horizontal = _kernels_first(h)
    zeros = lax.full(y.shape, 0, y.dtype)

    def row(j: Any) -> Any:
        return (y * _convolved_rows(x, horizontal, j, zeros)).sum(1)

    parts = jnp.stack([row(j) for j in range(rows)]) if rows <= _MOST_STEPS else lax.map(row, lax.iota(jnp.int32, rows))
    return lax.convert_element_type(lax.transpose(parts, (1, 0, 2, 3)), dtype)


@op(linear="each", axes=rows_of((0, 1, 2)), cost=_separable_cost, precision="low")
def separable_horizontal_grad(y: Array, x: Array, vertical_kernel: Array, /) -> jax.Array:
    """The transpose of `adaptive_separable_convolution` in the horizontal kernel.

    Args:
        y: (B, C, H, W).
        x: (B, C, H + J - 1, W + I - 1).
        vertical_kernel: (B, J, H, W).

    Returns:
        (B, I, H, W).
    """
    _check_four_axes(y=y, x=x, vertical_kernel=vertical_kernel)
    _sizes(
        x.shape, y.shape, vertical_kernel.shape, (y.shape[0], x.shape[3] - y.shape[3] + 1, *y.shape[2:])
    )
    transposed = [lax.transpose(each, (0, 1, 3, 2)) for each in (y, x, vertical_kernel)]
    return lax.transpose(separable_vertical_grad.forward(*transposed), (0, 1, 3, 2))
