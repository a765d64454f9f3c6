"""Samples of the activation functions."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from . import fixed, real, sample


def softplus(x):
    """log(1 + exp(x)) without the double `where` of `jax.nn.softplus`."""
    return jnp.logaddexp(x, 0.0)


def wide(*shape):
    """`real` numbers 6 times as large, between and beyond the kinks at -2.5, 2.5 and 6."""
    draw = real(*shape)
    return lambda rng: 6 * draw(rng)


def shares(*shape, axis=-1):
    """Positive numbers whose sum along `axis` is 1."""

    def draw(rng):
        p = rng.uniform(0.2, 1, shape)
        return p / p.sum(axis, keepdims=True)
    return draw


SAMPLES = [
    sample("relu", real(2, 3), ref=jax.nn.relu),
    sample("leaky_relu", real(2, 3), ref=lambda x: jnp.where(x > 0, x, 0.1 * x)),
    sample("leaky_relu", real(2, 3), alpha=-0.3, ref=lambda x: jnp.where(x > 0, x, -0.3 * x)),
    sample("prelu", real(2, 3, 2), real(3), ref=lambda x, a: jnp.where(x > 0, x, a[:, None] * x)),
    sample("prelu", real(2, 3), real(), ref=lambda x, a: jnp.where(x > 0, x, a * x), note="one slope"),
    sample("prelu", real(4), real(1), ref=lambda x, a: jnp.where(x > 0, x, a * x), note="one slope in an array"),
    sample("prelu", real(2, 3), real(2), base_axis=0, ref=lambda x, a: jnp.where(x > 0, x, a[:, None] * x)),
    sample("prelu", real(2, 3), real(3), base_axis=-1, ref=lambda x, a: jnp.where(x > 0, x, a * x)),
    sample("relu6", wide(2, 3), ref=jax.nn.relu6),
    sample("hard_sigmoid", wide(2, 3), ref=lambda x: jnp.clip(0.2 * x + 0.5, 0, 1)),
    sample("hard_tanh", real(2, 4), ref=jax.nn.hard_tanh),
    sample("crelu", real(2, 3), ref=lambda x: jnp.concatenate([jax.nn.relu(x), jax.nn.relu(-x)], 1)),
    sample("crelu", real(2, 3), axis=-2, ref=lambda x: jnp.concatenate([jax.nn.relu(x), jax.nn.relu(-x)], 0)),
    sample("elu", real(2, 3), ref=jax.nn.elu),
    sample("elu", real(2, 3), alpha=0.4, ref=lambda x: jax.nn.elu(x, 0.4)),
    sample("selu", real(2, 3), ref=lambda x: 1.05070098735548 * jax.nn.elu(x, 1.673263242354377)),
    sample("selu", real(2, 3), scale=0.8, alpha=1.5, ref=lambda x: 0.8 * jax.nn.elu(x, 1.5)),
    sample("celu", real(2, 3), ref=lambda x: jnp.concatenate([jax.nn.elu(x), jax.nn.elu(-x)], 1)),
    sample("celu", real(3), alpha=0.4, axis=-1,
           ref=lambda x: jnp.concatenate([jax.nn.elu(x, 0.4), jax.nn.elu(-x, 0.4)])),
    sample("sigmoid", real(2, 3), ref=jax.nn.sigmoid),
    sample("log_sigmoid", real(2, 3), ref=jax.nn.log_sigmoid),
    sample("softplus", real(2, 3), ref=softplus),
    sample("softplus", real(2, 3), beta=2.5, ref=lambda x: softplus(2.5 * x) / 2.5),
    sample("softplus", real(2, 3), beta=-0.5, ref=lambda x: softplus(-0.5 * x) / -0.5),
    sample("tanh", real(2, 3), ref=jnp.tanh),
    sample("sigmoid_complement", fixed(0.25, 0.5, 0.9), fixed(-math.log(3), 0.0, math.log(9)), ref=lambda s, x: 1 - s,
           numeric=False),
    sample("tanh_slope", fixed(0.25, 0.0, -0.9), lambda rng: np.arctanh([0.25, 0.0, -0.9]), ref=lambda t, x: 1 - t * t,
           numeric=False),
    sample("less_share", real(2, 3), shares(2, 3), ref=lambda x, p: x - p * jnp.sum(x, -1, keepdims=True),
           numeric=False),
    sample("less_share", real(2, 3), shares(2, 3, axis=0), axis=0, ref=lambda x, p: x - p * jnp.sum(x, 0),
           numeric=False),
    sample("less_mean", real(2, 3), shares(2, 3), ref=lambda x, p: x - jnp.sum(p * x, -1, keepdims=True),
           numeric=False),
    sample("less_mean", real(2, 3), shares(2, 3, axis=0), axis=0, ref=lambda x, p: x - jnp.sum(p * x, 0),
           numeric=False),
    sample("tanh_shrink", real(2, 3), ref=lambda x: x - jnp.tanh(x)),
    sample("softsign", real(2, 3), ref=jax.nn.soft_sign),
    sample("swish", real(2, 3), ref=jax.nn.swish),
    sample("gelu", real(2, 3), ref=lambda x: jax.nn.gelu(x, approximate=True)),
    sample("mish", real(2, 3), ref=jax.nn.mish),
    sample("softmax", real(2, 3), ref=jax.nn.softmax),
    sample("softmax", real(2, 3), axis=0, ref=lambda x: jax.nn.softmax(x, 0)),
    sample("softmax", real(2, 3, 2), axis=-2, ref=lambda x: jax.nn.softmax(x, 1)),
    sample("softmax", real(2, 1), ref=jax.nn.softmax, note="size 1"),
    sample("softmax", fixed(1000.0, 999.0, -1000.0), ref=jax.nn.softmax, note="large"),
    sample("log_softmax", real(2, 3), ref=jax.nn.log_softmax),
    sample("log_softmax", real(2, 3), axis=0, ref=lambda x: jax.nn.log_softmax(x, 0)),
    sample("log_softmax", real(2, 3, 2), axis=-2, ref=lambda x: jax.nn.log_softmax(x, 1)),
    sample("log_softmax", real(2, 1), ref=jax.nn.log_softmax, note="size 1"),
    sample("log_softmax", fixed(1000.0, 999.0, -1000.0), ref=jax.nn.log_softmax, note="large"),
]
