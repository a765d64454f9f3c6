"""Sums, means and other reductions over axes, and running sums and products."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from ..graph import op
from ..graph.arguments import Axes, axes_of


@op(linear=True)
def sum(x, /, axis: Axes | None = None, keepdims: bool = False):
    """Sum over `axis` (one or several; None for all)."""
    axes = axes_of(axis, x.ndim)
    if x.dtype == bool:
        x = lax.convert_element_type(x, jnp.int32)
    y = lax.reduce_sum(x, axes)
    return lax.expand_dims(y, axes) if keepdims else y


@op(linear=True)
def mean(x, /, axis: Axes | None = None, keepdims: bool = False):
    """Arithmetic mean over `axis` (one or several; None for all)."""
    return jnp.mean(x, axis=axes_of(axis, x.ndim), keepdims=keepdims)
