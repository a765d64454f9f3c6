"""Samples of selections."""

import jax.numpy as jnp

from . import real, sample, whole

SAMPLES = [
    sample("diagonal", real(3, 4), ref=lambda x: jnp.diagonal(x), orders=1),
    sample("diagonal", real(3, 2, 4), offset=-1, axis1=2, axis2=0, orders=1,
           ref=lambda x: jnp.diagonal(x, -1, 2, 0)),
    sample("select_item", real(3, 4), whole(2, 0, -1), orders=1, ref=lambda x, t: x[jnp.arange(3), t]),
    sample("permutate", real(2, 3), whole(2, 0, 1), axis=1, orders=1, ref=lambda x, i: x[:, i]),
    sample("permutate", real(3, 2), whole(2, 0, 1), inv=True, orders=1,
           ref=lambda x, i: jnp.zeros_like(x).at[i].set(x)),
]
