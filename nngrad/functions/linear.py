"""Matrix products, convolutions, embedding and matrix functions."""

from __future__ import annotations

import jax.numpy as jnp

from ..graph import composite, op


@op(linear=True)
def batch_matmul(a, b, /, transpose_a: bool = False, transpose_b: bool = False):
    """Matrix product of the last two axes; leading axes broadcast."""
    if transpose_a:
        a = jnp.swapaxes(a, -1, -2)
    if transpose_b:
        b = jnp.swapaxes(b, -1, -2)
    return jnp.matmul(a, b)


@composite
def dot(a, b, /):
    return batch_matmul(a, b)
