"""Samples of the family `reduction`."""

import jax.numpy as jnp
from jax.scipy.special import logsumexp

from . import Sample, between, fixed, integers, real, sample

# Two zeros in one row, one in another: every product of all but one element is 0 in the first row.
ZEROS = fixed([0.0, 1.5, 0.0], [0.7, 0.0, -1.2], [0.4, -0.9, 1.1])


def product(x, axis):
    """Product over one axis without a division or a log: exact derivatives at zeros."""
    parts = jnp.moveaxis(x, axis, 0)
    y = jnp.ones(parts.shape[1:])
    for part in parts:
        y = y * part
    return y


def lp(p, axis=None, keepdims=False):
    return lambda x: jnp.sum(jnp.abs(x) ** p, axis, keepdims=keepdims) ** (1 / p)


SAMPLES: list[Sample] = [
    sample("sum", real(2, 3), ref=jnp.sum),
    sample("sum", real(2, 3, 2), ref=lambda x: jnp.sum(x, (0, -1)), axis=(0, -1)),
    sample("sum", real(2, 3), ref=lambda x: jnp.sum(x, -1, keepdims=True), axis=-1, keepdims=True),
    sample("sum", real(), ref=lambda x: x, note="scalar"),
    sample("sum", integers(0, 9, 2, 3), ref=lambda x: jnp.sum(x, 0, dtype=jnp.int32), axis=0, orders=0, note="int"),
    sample("mean", real(2, 3), ref=jnp.mean),
    sample("mean", real(2, 3, 2), ref=lambda x: jnp.mean(x, (-2, 0)), axis=(-2, 0)),
    sample("mean", real(2, 3), ref=lambda x: jnp.mean(x, 0, keepdims=True), axis=0, keepdims=True),
    sample("mean", integers(0, 9, 2, 4), ref=lambda x: jnp.mean(x, 1, dtype=jnp.float32), axis=1, orders=0, note="int"),
    sample("reduce_sum", real(2, 3), ref=jnp.sum),
    sample("reduce_mean", real(2, 3), ref=jnp.mean),
    sample("reduce", real(2, 3), ref=jnp.mean, op="mean"),
    sample("var", real(2, 3), ref=jnp.var),
    sample("var", real(2, 3, 2), ref=lambda x: jnp.var(x, (0, -1), keepdims=True), axis=(0, -1), keepdims=True),
    sample("var", real(2, 1), ref=lambda x: 0 * x[:, 0], axis=-1, note="one"),
    sample("std", real(2, 3), ref=jnp.std),
    sample("std", real(3, 4), ref=lambda x: jnp.std(x, -1, keepdims=True), axis=-1, keepdims=True),
    sample("std", fixed([0.1, 0.1, 0.1], [0.3, 0.5, 1.0]), axis=1, numeric=False, orders=1, note="equal",
           ref=lambda x: jnp.stack([0 * x[0, 0], jnp.std(x[1])])),
    sample("max", real(2, 3), ref=jnp.max),
    sample("max", real(2, 3, 2), ref=lambda x: jnp.max(x, (0, -1)), axis=(0, -1)),
    sample("max", real(2, 3), ref=lambda x: jnp.max(x, -2, keepdims=True), axis=-2, keepdims=True),
    sample("max", fixed([1.0, 2.0, 2.0], [3.0, 3.0, 3.0]), ref=lambda x: jnp.max(x, 1), axis=1, numeric=False,
           note="ties"),
    sample("max", real(2, 3), ref=lambda x: (jnp.max(x, 1), jnp.argmax(x, 1)), axis=-1, with_index=True),
    sample("max", real(2, 3, 2), ref=lambda x: jnp.argmax(x.transpose(1, 0, 2).reshape(3, 4), 1), axis=(0, 2),
           only_index=True, orders=0),
    sample("min", real(2, 3), ref=jnp.min),
    sample("min", real(2, 3, 2), ref=lambda x: jnp.min(x, (0, -1), keepdims=True), axis=(0, -1), keepdims=True),
    sample("min", fixed([1.0, 1.0, 2.0], [3.0, 3.0, 3.0]), ref=lambda x: jnp.min(x, 1), axis=1, numeric=False,
           note="ties"),
    sample("min", real(2, 3), ref=lambda x: (jnp.min(x, 0), jnp.argmin(x, 0)), axis=0, with_index=True),
    sample("min", real(2, 3), ref=lambda x: jnp.argmin(x), only_index=True, orders=0),
    sample("amax", real(2, 3), ref=lambda x: jnp.max(x, 0), axis=0),
    sample("amin", real(2, 3), ref=lambda x: jnp.min(x, 0), axis=0),
    sample("amax", real(2, 3), ref=lambda x: jnp.max(x, 1, keepdims=True), axis=-1, keepdims=True),
    sample("amin", real(2, 3), ref=lambda x: jnp.min(x, 1, keepdims=True), axis=-1, keepdims=True),
    sample("argmin", real(2, 3), ref=lambda x: jnp.argmin(x, 1, keepdims=True), axis=1, keepdims=True, orders=0),
    sample("argmax", real(2, 3), ref=lambda x: jnp.argmax(x, 1, keepdims=True), axis=1, keepdims=True, orders=0),
    sample("argmin", real(2, 3), ref=lambda x: jnp.argmin(x, 0), axis=-2, orders=0),
    sample("prod", real(3), ref=lambda x: product(x, 0)),
    sample("prod", real(2, 3), ref=lambda x: product(x, 1), axis=-1),
    sample("prod", real(2, 3, 2), ref=lambda x: product(x.transpose(1, 0, 2).reshape(3, 4), 1)[None, :, None],
           axis=(0, -1), keepdims=True),
    sample("prod", ZEROS, ref=lambda x: product(x, 1), axis=1, note="zeros"),
    sample("prod", ZEROS, ref=lambda x: product(x.reshape(9), 0), note="zeros"),
    sample("prod", real(2, 1), ref=lambda x: product(x, 1), axis=1, note="one"),
    sample("norm", real(2, 3), ref=lp(2)),
    sample("norm", real(2, 3), ref=lp(2, -1, True), axis=-1, keepdims=True),
    sample("norm", real(2, 3, 2), ref=lp(3, (0, -1)), p=3, axis=(0, -1)),
    sample("norm", real(2, 3), ref=lp(1, 0), p=1, axis=0),
    sample("norm", fixed([0.0, 0.5, -1.0], [0.0, -0.0, 2.0]), ref=lambda x: jnp.sum(jnp.abs(x), 1), p=1, axis=1,
           numeric=False, note="zeros"),
    sample("norm", real(2, 3), ref=lp(2.5, 1), p=2.5, axis=1),
    sample("norm", real(2, 3), ref=lambda x: jnp.sum(x**4, 1) ** 0.25, p=4, axis=1),
    sample("norm", real(2, 3), ref=lambda x: jnp.max(jnp.abs(x), 1), p=float("inf"), axis=1),
    sample("norm", real(2, 3), ref=lambda x: jnp.min(jnp.abs(x), 0), p=float("-inf"), axis=0),
    sample("norm", fixed([0.0, 0.0, 0.0], [0.0, 0.5, 1.0]), axis=1, numeric=False, orders=1, note="zeros",
           ref=lambda x: jnp.stack([0 * x[0, 0], jnp.sqrt(jnp.sum(x[1] ** 2))])),
    sample("norm", fixed([0.0, 0.0, 0.0], [0.0, 0.5, 1.0]), p=4, axis=1, numeric=False, orders=1, note="zeros",
           ref=lambda x: jnp.stack([0 * x[0, 0], jnp.sum(x[1] ** 4) ** 0.25])),
    sample("norm", fixed([0.0, 0.0, 0.0], [0.0, 0.5, 1.0]), p=1.5, axis=1, numeric=False, orders=1, note="zeros",
           ref=lambda x: jnp.stack([0 * x[0, 0], jnp.sum(x[1, 1:] ** 1.5) ** (1 / 1.5)])),
    sample("logsumexp", real(2, 3), ref=logsumexp),
    sample("logsumexp", real(2, 3, 2), ref=lambda x: logsumexp(x, (0, -1)), axis=(0, -1)),
    sample("logsumexp", between(700.0, 800.0, 2, 3), ref=lambda x: logsumexp(x, 1, keepdims=True), axis=-1,
           keepdims=True, note="large"),
]
