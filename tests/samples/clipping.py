"""Samples of the family `clipping`."""

import jax.numpy as jnp

from . import Sample, fixed, real, sample

SAMPLES: list[Sample] = [
    sample("clip", real(2, 3), fixed(-0.4), fixed(0.7), ref=jnp.clip),
    sample("clip_by_value", real(2, 3), fixed([-0.4], [0.2]), fixed(0.7),
           ref=lambda x, low, high: jnp.minimum(jnp.maximum(x, low), high)),
    sample("clip_by_norm", real(2, 3), fixed(1.1), axis=1,
           ref=lambda x, n: x * n / jnp.maximum(jnp.sqrt(jnp.sum(x**2, 1, keepdims=True)), n)),
    sample("clip_grad_by_value", real(2, 3), fixed(-0.4), fixed(0.7), ref=lambda x, *_: x, surrogate=True),
    sample("clip_grad_by_norm", real(2, 3), ref=lambda x: x, surrogate=True, clip_norm=2.0, axes=(1,)),
    sample("top_k_grad", real(2, 3), ref=lambda x: x, surrogate=True, k=2),
    sample("top_k_grad", real(2, 3), ref=lambda x: x, surrogate=True, k=2, abs=True, base_axis=0),
]
