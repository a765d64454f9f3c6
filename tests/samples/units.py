"""Samples of units."""

import jax
import jax.numpy as jnp

from . import real, sample

sigmoid, tanh = jax.nn.sigmoid, jnp.tanh


def gates(x):
    return [x[:, k::4] for k in range(4)]


def lstm(c, x):
    a, i, f, o = gates(x)
    rest, c = c[len(x):], c[: len(x)]
    c = tanh(a) * sigmoid(i) + c * sigmoid(f)
    return jnp.concatenate([c, rest]), tanh(c) * sigmoid(o)


def slstm(c1, c2, x1, x2):
    (a1, i1, f1, o1), (a2, i2, f2, o2) = gates(x1), gates(x2)
    c = tanh(a1) * sigmoid(i1) + tanh(a2) * sigmoid(i2) + c1 * sigmoid(f1) + c2 * sigmoid(f2)
    return c, tanh(c) * sigmoid(o1 + o2)


SAMPLES = [
    sample("maxout", real(2, 6), pool_size=3, ref=lambda x: jnp.max(x.reshape(2, 2, 3), -1)),
    sample("maxout", real(4, 2), pool_size=2, axis=0, ref=lambda x: jnp.max(x.reshape(2, 2, 2), 1)),
    sample("scaled_swish", real(2, 3, 2), real(3), ref=lambda x, b: x * sigmoid(b[:, None] * x)),
    sample("lstm_step", real(2, 2), real(2, 8), ref=lstm),
    sample("lstm_step", real(3, 1), real(2, 4), ref=lstm, note="fewer rows"),
    sample("slstm", real(2, 1), real(2, 1), real(2, 4), real(2, 4), ref=slstm),
]
