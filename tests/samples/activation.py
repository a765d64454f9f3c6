"""Samples of the activation functions."""

import jax.numpy as jnp

from . import real, sample

SAMPLES = [
    sample("tanh", real(2, 3), ref=jnp.tanh),
]
