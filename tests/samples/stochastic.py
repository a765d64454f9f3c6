"""Samples of random functions.

The oracle runs a graph from its leaves as they are before any forward(), when every key is zeros: so a
reference knows the key of a function that draws its own.
"""

import jax
import jax.numpy as jnp
import numpy as np

from . import fixed, real, sample

ZEROS = np.zeros(2, np.uint32)


def as_key(key):
    return jax.random.wrap_key_data(jnp.asarray(key), impl="threefry2x32")


def kept(key, p, shape):
    return (jax.random.uniform(as_key(key), shape, jnp.float32) < np.float32(p)).astype(jnp.float64)


def urn(key, count, high):
    """Floyd's algorithm with a list of what was chosen, on the numbers that JAX draws."""
    of_set, of_order = jax.random.split(as_key(key))
    drawn = jax.random.randint(of_set, (count,), 0, jnp.arange(high - count, high) + 1, jnp.int32)
    chosen = [drawn[0]]
    for i in range(1, count):
        chosen.append(jnp.where(jnp.isin(drawn[i], jnp.stack(chosen)), high - count + i, drawn[i]))
    return jax.random.permutation(of_order, jnp.stack(chosen).astype(jnp.int32))


KEY = fixed(3, 5, dtype=np.uint32)

SAMPLES = [
    sample("bernoulli", KEY, p=0.3, shape=(3, 4), dtype=np.float64, orders=0, ref=lambda k: kept(k, 0.3, (3, 4))),
    sample("uniform", KEY, low=-1.0, high=2.0, shape=(3,), orders=0,
           ref=lambda k: jax.random.uniform(as_key(k), (3,), jnp.float32, -1.0, 2.0)),
    sample("normal", KEY, mu=1.0, sigma=2.0, shape=(3,), orders=0,
           ref=lambda k: 1 + 2 * jax.random.normal(as_key(k), (3,), jnp.float32)),
    sample("integers", KEY, low=-3, high=4, shape=(5,), orders=0,
           ref=lambda k: jax.random.randint(as_key(k), (5,), -3, 4, jnp.int32)),
    sample("distinct_integers", KEY, count=4, high=4, orders=0, ref=lambda k: urn(k, 4, 4)),
    sample("distinct_integers", KEY, count=3, high=7, orders=0, ref=lambda k: urn(k, 3, 7)),
    sample("subkey", KEY, index=1, orders=0, ref=lambda k: jax.random.key_data(jax.random.fold_in(as_key(k), 1))),
    sample("dropout", real(3, 4), ref=lambda x: x * kept(ZEROS, 0.5, (3, 4)) / 0.5),
    sample("dropout", real(3, 4), p=0.25, seed=3, ref=lambda x: x * kept(ZEROS, 0.75, (3, 4)) / 0.75),
    sample("dropout", real(2), p=0.0, ref=lambda x: x),
    sample("rand", shape=(2, 3), orders=0, ref=lambda: jax.random.uniform(as_key(ZEROS), (2, 3), jnp.float32)),
    sample("randn", shape=(2, 3), orders=0, ref=lambda: jax.random.normal(as_key(ZEROS), (2, 3), jnp.float32)),
    sample("randint", shape=(2, 3), high=9, orders=0,
           ref=lambda: jax.random.randint(as_key(ZEROS), (2, 3), 0, 9, jnp.int32)),
]
