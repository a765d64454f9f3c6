"""Samples of sums, products, powers and extrema."""

import jax.numpy as jnp

from . import real, sample

SAMPLES = [
    sample("add2", real(2, 3), real(2, 3), ref=jnp.add),
    sample("add2", real(2, 3), real(1, 3), ref=jnp.add, note="broadcast"),
    sample("pow_scalar", real(2, 3), val=3.0, ref=lambda x: x**3),
]
