"""Samples of the family `validation`."""

import jax.numpy as jnp

from . import Sample, fixed, sample, whole

SCORES = fixed([0.1, 0.5, 0.4], [0.3, 0.3, 0.4], [0.7, 0.2, 0.1], [0.2, 0.7, 0.1])
CLASSES = whole([2], [0], [0], [-1])

SAMPLES: list[Sample] = [
    sample("top_n_error", SCORES, CLASSES, orders=0, ref=lambda *_: jnp.array([[1.0], [1.0], [0.0], [1.0]])),
    sample("top_n_error", SCORES, CLASSES, n=2, axis=1, orders=0,
           ref=lambda *_: jnp.array([[0.0], [1.0], [0.0], [1.0]])),
    sample("binary_error", fixed(0.2, 0.5, 0.9), fixed(0.0, 0.0, 1.0), orders=0,
           ref=lambda *_: jnp.array([0.0, 1.0, 0.0])),
    sample("confusion_matrix", SCORES, CLASSES, orders=0,
           ref=lambda *_: jnp.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]], jnp.float32)),
    sample("confusion_matrix", fixed([0.1, 0.5, 0.2], [0.3, 0.2, 0.7]), whole([0, 1, 1]), axis=0, orders=0,
           ref=lambda *_: jnp.array([[0, 1], [1, 1]], jnp.float32)),
]
