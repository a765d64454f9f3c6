"""Samples of orthogonal polynomials."""

import jax.numpy as jnp

from . import Sample, between, real, sample

SAMPLES: list[Sample] = [
    sample("orthogonal_polynomial", real(2, 3), degree=4, ref=lambda x: (35 * x**4 - 30 * x**2 + 3) / 8),
    sample("orthogonal_polynomial", between(-1.0, 1.0, 3), degree=5, family="chebyshev",
           ref=lambda x: jnp.cos(5 * jnp.arccos(x))),
    sample("orthogonal_polynomial", between(-1.0, 1.0, 3), degree=3, family="gegenbauer", parameter=1.0,
           ref=lambda x: jnp.sin(4 * jnp.arccos(x)) / jnp.sin(jnp.arccos(x))),
    sample("orthogonal_polynomial", real(3), degree=3, family="gegenbauer", parameter=-0.25,
           ref=lambda x: -0.4375 * x**3 + 0.375 * x),
    sample("orthogonal_polynomial", real(3), degree=3, family="hermite", ref=lambda x: 8 * x**3 - 12 * x),
    sample("orthogonal_polynomial", real(3), degree=4, family="hermite_e", ref=lambda x: x**4 - 6 * x**2 + 3),
    sample("orthogonal_polynomial", real(3), degree=2, family="laguerre", parameter=0.5,
           ref=lambda x: x**2 / 2 - 2.5 * x + 1.875),
    sample("orthogonal_polynomial", real(2), degree=0, family="laguerre", parameter=0.5, ref=jnp.ones_like),
]
