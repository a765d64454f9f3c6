"""Adaptive separable convolution: at each position its own kernel, the product of a vertical and a horizontal one."""

from __future__ import annotations

import functools
import operator

import jax.numpy as jnp
import numpy as np

from ..graph import Array, Variable, composite
from ..graph.spec import FLOAT32
from . import array, loops, movement
from .checkpoints import checkpoint
from .moments import accurate
from .slicing import take_points


@composite
def adaptive_separable_convolution(x: Array, vertical_kernel: Array, horizontal_kernel: Array, /) -> Variable:
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
    arrays = {"x": x, "vertical_kernel": vertical_kernel, "horizontal_kernel": horizontal_kernel}
    for name, operand in arrays.items():
        if operand.ndim != 4:
            raise ValueError(f"{name} must have 4 axes, got shape {operand.shape}")
    (batch, rows, height, width), columns = vertical_kernel.shape, horizontal_kernel.shape[1]
    wide = (batch, x.shape[1], height + rows - 1, width + columns - 1)
    if x.shape != wide or horizontal_kernel.shape != (batch, columns, height, width) or min(rows, columns) < 1:
        raise ValueError(
            "x, vertical_kernel and horizontal_kernel must be of shape (B, C, H + J - 1, W + I - 1), (B, J, H, W) and "
            f"(B, I, H, W), got {x.shape}, {vertical_kernel.shape} and {horizontal_kernel.shape}"
        )
    x, v, h = (accurate(operand) for operand in arrays.values())

    @checkpoint  # gradients recompute the lines
    def line(places: Variable, factor: Variable) -> Variable:
        """The products of a row of the vertical kernel: those rows of `x`, convolved along their length, times it."""
        below = take_points(x, places, axes=(2,), at=2)
        parts = [below[..., i : i + width] * h[:, i : i + 1] for i in range(columns)]
        return functools.reduce(operator.add, parts) * factor

    def step(total: Variable, row: tuple[Variable, Variable]) -> tuple[Variable, None]:
        return total + line(*row), None

    places = (np.arange(rows)[:, None] + np.arange(height)).astype(np.int32)[:, :, None]
    factors = movement.reshape(movement.transpose(v, axes=(1, 0, 2, 3)), shape=(rows, batch, 1, height, width))
    dtype = functools.reduce(jnp.promote_types, [operand.dtype for operand in (x, v, h)])
    zeros = array.constant(0, shape=(batch, x.shape[1], height, width), dtype=dtype)
    y, _ = loops.scan(step, zeros, (places, factors))
    narrow = [operand.dtype if operand.spec.differentiable else FLOAT32 for operand in arrays.values()]
    return array.in_dtype(y, functools.reduce(jnp.promote_types, narrow))
