"""Samples of attention."""

import jax
import jax.numpy as jnp

from . import real, sample, whole


def attended(query, key, value, heads, additive=0.0, hidden=None):
    """What each head attends to, by loops over the batch and the heads, and the weights."""
    outputs, weights = [], []
    for b in range(query.shape[1]):
        parts = [jnp.split(x[:, b], heads, axis=1) for x in (query, key, value)]
        for q, k, v in zip(*parts, strict=True):
            scores = q @ k.T / q.shape[1] ** 0.5 + additive
            if hidden is not None:
                scores = jnp.where(hidden[b] != 0, -jnp.inf, scores)
            weights.append(jax.nn.softmax(scores, axis=1))
            outputs.append(weights[-1] @ v)
    rows = [jnp.concatenate(outputs[i : i + heads], axis=1) for i in range(0, len(outputs), heads)]
    return jnp.stack(rows, axis=1), jnp.stack(weights)


SAMPLES = [
    sample("scaled_dot_product_attention", real(2, 2, 4), real(3, 2, 4), real(3, 2, 2), real(2, 3),
           whole([0, 0, 1], [0, 0, 0]), num_heads=2, ref=lambda q, k, v, a, h: attended(q, k, v, 2, a, h)),
    sample("scaled_dot_product_attention", real(2, 1, 2), real(3, 1, 2), real(3, 1, 1),
           ref=lambda q, k, v: attended(q, k, v, 1)),
]
