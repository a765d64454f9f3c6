"""Samples of attention."""

import jax
import jax.numpy as jnp
import numpy as np

from . import fixed, real, sample, whole


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


def averaged(q, k, v, mask=None, causal=False, scale=None):
    """Values averaged with all weights at once, where successive heads share keys; 0 where nothing is seen."""
    groups = q.shape[1] // k.shape[1]
    scores = jnp.einsum("bhtd,bhsd->bhts", q, jnp.repeat(k, groups, axis=1))
    scores = scores * (q.shape[3] ** -0.5 if scale is None else scale)
    seen = jnp.ones(scores.shape, bool)
    if mask is not None and mask.dtype == bool:
        seen = seen & mask
    elif mask is not None:
        seen = seen & (mask != -jnp.inf)
        scores = scores + jnp.where(mask == -jnp.inf, 0, mask)
    if causal:
        seen = seen & jnp.tril(jnp.ones(scores.shape[2:], bool))
    # So that JAX's gradients are finite too where nothing is seen.
    top = jax.lax.stop_gradient(jnp.max(jnp.where(seen, scores, -1e30), axis=3, keepdims=True))
    e = jnp.where(seen, jnp.exp(jnp.where(seen, scores - top, 0)), 0)
    total = jnp.sum(e, axis=3, keepdims=True)
    return jnp.einsum("bhts,bhsd->bhtd", e / jnp.where(total == 0, 1, total), jnp.repeat(v, groups, axis=1))


SEEN = np.array([[True, False, True], [False, False, False]])

SAMPLES = [
    sample("attention", real(1, 2, 2, 3), real(1, 2, 3, 3), real(1, 2, 3, 2), ref=averaged),
    sample("attention", real(1, 2, 2, 3), real(1, 1, 3, 3), real(1, 1, 3, 2), real(2, 1, 3), causal=True, scale=0.7,
           ref=lambda *xs: averaged(*xs, causal=True, scale=0.7)),
    sample("attention", real(2, 1, 2, 2), real(2, 1, 3, 2), real(2, 1, 3, 1), fixed(*SEEN, dtype=bool),
           note="of bool", ref=lambda *xs: averaged(*xs)),
    sample("scaled_dot_product_attention", real(2, 2, 4), real(3, 2, 4), real(3, 2, 2), real(2, 3),
           whole([0, 0, 1], [0, 0, 0]), num_heads=2, ref=lambda q, k, v, a, h: attended(q, k, v, 2, a, h)),
    sample("scaled_dot_product_attention", real(2, 1, 2), real(3, 1, 2), real(3, 1, 1),
           ref=lambda q, k, v: attended(q, k, v, 1)),
]
