"""Samples of the family `reduction`."""

import jax.numpy as jnp
from jax.scipy.special import logsumexp

from . import Sample, between, fixed, integers, positive, real, sample

# Two zeros in one row, one in another: every product of all but one element is 0 in the first row.
ZEROS = fixed([0.0, 1.5, 0.0], [0.7, 0.0, -1.2], [0.4, -0.9, 1.1])


def product(x, axis):
    """Product over one axis without a division or a log: exact derivatives at zeros."""
    parts = jnp.moveaxis(x, axis, 0)
    y = jnp.ones(parts.shape[1:])
    for part in parts:
        y = y * part
    return y


def running(x, exclusive=False, reverse=False):
    """Running product along the first axis, one factor after the other."""
    rows = list(x)[::-1] if reverse else list(x)
    y, total = [], jnp.ones(x.shape[1:])
    for row in rows:
        if exclusive:
            y.append(total)
        total = total * row
        if not exclusive:
            y.append(total)
    return jnp.stack(y[::-1] if reverse else y)


def recurrence(a, b, reverse=False):
    """y[k] = a[k] y[k-1] + b[k] along the first axis."""
    ks = range(len(a))[::-1] if reverse else range(len(a))
    y, last = [None] * len(a), jnp.zeros(a.shape[1:])
    for k in ks:
        last = y[k] = a[k] * last + b[k]
    return jnp.stack(y)


def exclusive_sum(x):
    return jnp.cumsum(x, 1) - x


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
    sample("var", real(2, 3), ref=jnp.var),
    sample("var", real(2, 3, 2), ref=lambda x: jnp.var(x, (0, -1), keepdims=True), axis=(0, -1), keepdims=True),
    sample("var", real(2, 1), ref=lambda x: 0 * x[:, 0], axis=-1, note="one"),
    sample("std", real(2, 3), ref=jnp.std),
    sample("std", real(3, 4), ref=lambda x: jnp.std(x, -1, keepdims=True), axis=-1, keepdims=True),
    sample("std", fixed([0.1, 0.1, 0.1], [0.3, 0.5, 1.0]), axis=1, numeric=False, note="equal",
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
    sample("norm", real(2, 3), ref=lp(2.5, 1), p=2.5, axis=1),
    sample("norm", real(2, 3), ref=lambda x: jnp.sum(x**4, 1) ** 0.25, p=4, axis=1),
    sample("norm", fixed([0.0, 0.0, 0.0], [0.0, 0.5, 1.0]), axis=1, numeric=False, note="zeros",
           ref=lambda x: jnp.stack([0 * x[0, 0], jnp.sqrt(jnp.sum(x[1] ** 2))])),
    sample("norm", fixed([0.0, 0.0, 0.0], [0.0, 0.5, 1.0]), p=4, axis=1, numeric=False, note="zeros",
           ref=lambda x: jnp.stack([0 * x[0, 0], jnp.sum(x[1] ** 4) ** 0.25])),
    sample("norm", fixed([0.0, 0.0, 0.0], [0.0, 0.5, 1.0]), p=1.5, axis=1, numeric=False, note="zeros",
           ref=lambda x: jnp.stack([0 * x[0, 0], jnp.sum(x[1, 1:] ** 1.5) ** (1 / 1.5)])),
    sample("logsumexp", real(2, 3), ref=logsumexp),
    sample("logsumexp", real(2, 3, 2), ref=lambda x: logsumexp(x, (0, -1)), axis=(0, -1)),
    sample("logsumexp", between(700.0, 800.0, 2, 3), ref=lambda x: logsumexp(x, 1, keepdims=True), axis=-1,
           keepdims=True, note="large"),
    sample("cumsum", real(3, 2), ref=lambda x: jnp.cumsum(x, 0)),
    sample("cumsum", real(2, 3), ref=exclusive_sum, axis=-1, exclusive=True),
    sample("cumsum", real(2, 3), ref=lambda x: jnp.cumsum(x[:, ::-1], 1)[:, ::-1], axis=1, reverse=True),
    sample("cumsum", real(2, 3), ref=lambda x: exclusive_sum(x[:, ::-1])[:, ::-1], axis=1, exclusive=True,
           reverse=True),
    sample("cumprod", positive(3, 2), ref=running),
    sample("cumprod", ZEROS, ref=running, axis=0, note="zeros"),
    sample("cumprod", ZEROS, ref=lambda x: running(x.T, exclusive=True).T, axis=-1, exclusive=True, note="zeros"),
    sample("cumprod", ZEROS, ref=lambda x: running(x, reverse=True), reverse=True, note="zeros"),
    sample("cumprod", ZEROS, ref=lambda x: running(x, exclusive=True, reverse=True), exclusive=True, reverse=True,
           note="zeros"),
    sample("recurrence", real(4, 2), real(4, 2), ref=recurrence),
    sample("recurrence", real(2, 3), real(2, 3), ref=lambda a, b: recurrence(a.T, b.T, True).T, axis=-1, reverse=True),
    sample("displace", real(3, 2), ref=lambda x: jnp.pad(x[:-1], ((1, 0), (0, 0)))),
    sample("displace", real(2, 3), ref=lambda x: jnp.pad(x[:, 2:], ((0, 0), (0, 2))), axis=-1, by=-2),
    sample("displace", real(2, 3), ref=jnp.zeros_like, axis=0, by=5),
]
