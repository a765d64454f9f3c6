"""Samples of means and arrays that are scaled and shifted along some of their axes."""

import jax.numpy as jnp

from . import real, sample

SAMPLES = [
    sample("batch_l2_norm_squared", real(2, 3, 2), ref=lambda x: jnp.sum(x**2, (1, 2))),
    sample("bias", real(2, 3, 2), real(3), orders=1, ref=lambda x, y: x + y[:, None]),
    sample("scale", real(2, 3, 2), real(3, 2), ref=lambda x, y: x * y),
    sample("linear_interpolate", real(2, 3), real(2, 3), real(2, 3), ref=lambda p, x, y: p * x + (1 - p) * y),
    sample("bias", real(2, 3, 2), real(2), axis=-1, orders=1, ref=lambda x, y: x + y),
    sample("scale", real(2, 3, 2), real(2, 3), axis=0, orders=2, ref=lambda x, y: x * y[..., None]),
]
