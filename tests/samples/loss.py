"""Samples of losses."""

import jax
import jax.numpy as jnp
import numpy as np

from . import between, fixed, integers, positive, real, sample


def cross_entropy(x, t, axis=-1):
    t = jnp.asarray(t).astype(int)
    y = -jnp.take_along_axis(jax.nn.log_softmax(x, axis), jnp.maximum(t, 0), axis)
    return jnp.where(t < 0, 0.0, y)


def negative_log(x, t, axis=-1):
    return jnp.where(t < 0, 0.0, -jnp.log(jnp.take_along_axis(x, jnp.maximum(t, 0), axis)))


def binary(x, t):
    return -(t * jnp.log(x) + (1 - t) * jnp.log(1 - x))


def huber(a, b, delta):
    d = jnp.abs(a - b)
    return jnp.where(d < delta, d**2, delta * (2 * d - delta))


def divergence(p, q, axes):
    return jnp.sum(p * (jnp.log(p + 1e-8) - jnp.log(q + 1e-8)), axes)[..., None]


def masked(t, classes):
    return jax.nn.one_hot(t[:, 0], classes, dtype=jnp.float64)


SAMPLES = [
    sample("class_mask", fixed([2], [-1], [0], dtype=np.int32), classes=3, axis=1, dtype=np.float64, orders=0,
           ref=lambda t: masked(t, 3)),
    sample("softmax_cross_entropy", real(3, 4), integers(0, 4, 3, 1), ref=cross_entropy),
    sample("softmax_cross_entropy", real(3, 4), fixed([1], [-1], [3], dtype=np.int64), ref=cross_entropy, note="-1"),
    sample("softmax_cross_entropy", real(2, 3, 2), integers(0, 3, 2, 1, 2), axis=1,
           ref=lambda x, t: cross_entropy(x, t, 1)),
    sample("softmax_cross_entropy", real(3, 1, 2), integers(0, 3, 1, 1, 2), axis=-3,
           ref=lambda x, t: cross_entropy(x, t, 0), note="size 1"),
    sample("softmax_cross_entropy", real(2, 3), fixed([2.0], [0.0]), ref=cross_entropy, numeric=False,
           note="float labels"),
    sample("softmax_cross_entropy", real(2, 1), fixed([0], [0], dtype=np.uint8), ref=cross_entropy, note="one class"),
    sample("categorical_cross_entropy", positive(3, 4), fixed([1], [-1], [3], dtype=np.int32), ref=negative_log),
    sample("categorical_cross_entropy", positive(2, 3, 2), integers(0, 3, 2, 1, 2), axis=1,
           ref=lambda x, t: negative_log(x, t, 1)),
    sample("sigmoid_cross_entropy", real(2, 3), real(2, 3), ref=lambda x, t: jnp.logaddexp(0, x) - x * t),
    sample("sigmoid_cross_entropy", real(2, 3), integers(0, 2, 2, 1), ref=lambda x, t: jnp.logaddexp(0, x) - x * t),
    sample("binary_cross_entropy", between(0, 1, 2, 3), between(0, 1, 2, 3), ref=binary),
    sample("binary_cross_entropy", between(0, 1, 2, 3), fixed(0.0, 1.0, 0.0), ref=binary, note="broadcast"),
    sample("binary_cross_entropy", between(0, 1, 2), integers(0, 2, 2), ref=binary, note="int"),
    sample("squared_error", real(2, 3), real(2, 3), ref=lambda a, b: (a - b) ** 2),
    sample("squared_error", real(2, 3), real(3), ref=lambda a, b: (a - b) ** 2, note="broadcast"),
    sample("absolute_error", real(2, 3), fixed([0.05, 1.5, -2.0], [0.3, 4.0, 0.02]), ref=lambda a, b: jnp.abs(a - b)),
    sample("absolute_error", real(3, 1), fixed(5.0, -5.0), ref=lambda a, b: jnp.abs(a - b), note="broadcast"),
    sample("huber_loss", real(2, 3), fixed([0.05, 1.5, -2.0], [0.3, 4.0, 0.02]), ref=lambda a, b: huber(a, b, 1.0)),
    sample("huber_loss", fixed(0.3, 4.0), fixed([0.2], [-3.0]), delta=2.0, ref=lambda a, b: huber(a, b, 2.0)),
    sample("huber_loss", fixed(-4.0, -0.3), fixed(0.5), delta=2.0, ref=lambda a, b: huber(a, b, 2.0), note="below"),
    sample("epsilon_insensitive_loss", real(2, 3), fixed([0.05, 1.5, -2.0], [0.3, 4.0, 0.02]), epsilon=0.7,
           ref=lambda a, b: jnp.maximum(jnp.abs(a - b) - 0.7, 0)),
    sample("kl_multinomial", positive(2, 3), positive(2, 3), ref=lambda p, q: divergence(p, q, 1)),
    sample("kl_multinomial", positive(2, 3, 2), positive(2, 3, 2), base_axis=-2,
           ref=lambda p, q: divergence(p, q, (1, 2))),
    sample("kl_multinomial", positive(2), positive(2), base_axis=0, ref=lambda p, q: divergence(p, q, 0)),
]
