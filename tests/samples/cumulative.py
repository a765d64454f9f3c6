"""Samples of the family `cumulative`."""

import jax.numpy as jnp

from . import Sample, positive, real, sample
from .reduction import ZEROS


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


SAMPLES: list[Sample] = [
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
