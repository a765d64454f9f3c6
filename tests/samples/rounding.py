"""Samples of the family `rounding`."""

import jax.numpy as jnp
from jax import lax

from . import Sample, fixed, sample

HALVES = fixed(-2.5, -0.5, 0.5, 1.5, 2.25)

SAMPLES: list[Sample] = [
    sample("rounded", HALVES, to="down", ref=jnp.floor, orders=0),
    sample("rounded", HALVES, to="up", ref=jnp.ceil, orders=0),
    sample("rounded", HALVES, to="to zero", ref=jnp.trunc, orders=0),
    sample("rounded", HALVES, to="nearest", ref=lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), orders=0),
    sample("rounded", HALVES, ref=jnp.round, orders=0),
    sample("signum", fixed(-2.0, 0.0, 3.0), ref=jnp.sign, orders=0),
]
