"""Samples of noise. A reference knows the key of a function that draws its own: zeros, before any forward()."""

import jax
import jax.numpy as jnp
import numpy as np

from . import real, sample
from .stochastic import ZEROS, as_key, kept


def gumbel(shape):
    tiny = jnp.finfo(jnp.float32).tiny
    u = jax.random.uniform(as_key(ZEROS), shape, jnp.float32) * (np.float32(1) - tiny) + tiny
    return (-jnp.log(-jnp.log(u))).astype(jnp.float64)


SAMPLES = [
    sample("gaussian", real(2, 3), real(2, 3),
           ref=lambda m, v: m + jnp.exp(v / 2) * jax.random.normal(as_key(ZEROS), (2, 3), jnp.float32)),
    sample("gaussian", real(2, 3), real(2, 3), real(2, 3), return_eps=True,
           ref=lambda m, v, e: (m + jnp.exp(v / 2) * e, e)),
    sample("gumbel_softmax", real(2, 3), tau=0.5, ref=lambda x: jax.nn.softmax((x + gumbel((2, 3))) / 0.5, 1)),
    sample("zoneout", real(2, 3), real(2, 3), ratio=0.3, orders=1,
           ref=lambda h, x: jnp.where(kept(ZEROS, 0.3, (2, 3)) == 1, h, x)),
]
