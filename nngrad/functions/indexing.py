"""Selecting and placing elements: masks, gather, scatter, sorting."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from ..graph import op

# ---------------------------------------------------------------- masks


@op(elementwise=True, broadcasts=True)
def where(condition, x_true, x_false, /):
    """`x_true` where `condition` is not 0, else `x_false`; the two broadcast together.

    The condition either has the shape of the first axes of the result, each of its elements standing for all
    that lies below it, or else broadcasts as in NumPy.
    """
    if x_true.dtype != x_false.dtype:
        dtype = jnp.promote_types(x_true.dtype, x_false.dtype)
        x_true, x_false = lax.convert_element_type(x_true, dtype), lax.convert_element_type(x_false, dtype)
    shape = _common_shape(x_true.shape, x_false.shape, "x_true and x_false")
    if condition.shape == shape[: condition.ndim]:
        axes = tuple(range(condition.ndim))
    else:
        shape = _common_shape(shape, condition.shape, "condition and the values")
        axes = tuple(range(len(shape) - condition.ndim, len(shape)))
    if condition.dtype != bool:
        condition = lax.ne(condition, lax.full_like(condition, 0))
    condition = lax.broadcast_in_dim(condition, shape, axes)
    return lax.select(condition, jnp.broadcast_to(x_true, shape), jnp.broadcast_to(x_false, shape))


def _common_shape(a: tuple[int, ...], b: tuple[int, ...], names: str) -> tuple[int, ...]:
    try:
        shape: tuple[int, ...] = jnp.broadcast_shapes(a, b)
    except ValueError:
        raise ValueError(f"{names} of shapes {a} and {b} do not broadcast") from None
    return shape
