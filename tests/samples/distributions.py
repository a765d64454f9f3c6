"""Samples of the family `distributions`."""

import jax
import jax.numpy as jnp
import jax.scipy.special as jss
import numpy as np

import nngrad.functions as F

from . import Sample, between, fixed, real, sample
from .stochastic import KEY, ZEROS, as_key


def part_below(k, y):
    """How much of the gamma distribution with shape k is below exp(y), by its power series."""
    z = jnp.exp(y)
    ratios = z[..., None] / (k[..., None] + jnp.arange(1.0, 70.0))
    series = (1 + jnp.sum(jnp.exp(jnp.cumsum(jnp.log(ratios), -1)), -1)) / k
    return series * jnp.exp(k * y - z - jss.gammaln(k))


def moved_with(key, k):
    """The logarithm of samples, as a function of k that keeps the part of the distribution below them: Newton's steps,
    each of which doubles the order to which its derivatives are right. Only the draw is nngrad's own."""
    still = jax.lax.stop_gradient(k)
    y = F.log_gamma_sample.forward(key, still)
    part = part_below(still, y)
    for _ in range(2):
        y = y - (part_below(k, y) - part) * jnp.exp(jss.gammaln(k) + jnp.exp(y) - k * y)
    return y


def moment(k, z, order, power, sign):
    """The integral over positive or negative w, by the rule of Gauss."""
    nodes, weights = np.polynomial.legendre.leggauss(150)
    most = 4.0 if sign > 0 else 30.0
    w = sign * most / 2 * (nodes + 1)
    terms = jnp.exp(k[..., None] * w - z[..., None] * np.expm1(w)) * w**order * np.expm1(w) ** power
    return sign * jnp.sum(most / 2 * weights * terms, -1)


SHAPES = fixed(0.4, 1.3, 6.0)

SAMPLES: list[Sample] = [
    sample("binomial", KEY, n=5, p=0.3, shape=(4,), orders=0, ref=lambda k: jax.random.binomial(
        as_key(k), np.float32(5), np.float32(0.3), (4,), jnp.float32)),
    sample("log_gamma_sample", KEY, SHAPES, numeric=False, ref=moved_with),
    sample("gamma_moment", fixed(0.4, 1.3), fixed(1.2, 2.9), ref=lambda k, z: moment(k, z, 0, 0, 1)),
    sample("gamma_moment", between(2.0, 3.0, 2), fixed(1.2, 0.3), order=1, power=2, orders=1,
           ref=lambda k, z: moment(k, z, 1, 2, -1)),
    sample("weighted_choice", KEY, fixed([0.0, 1.0, 0.0], [0.0, 0.0, 2.0]), count=2, orders=0,
           ref=lambda *_: jnp.array([[1, 1], [2, 2]], jnp.int32)),
    sample("weighted_choice", KEY, fixed([0.0, 1.0], [3.0, 0.0]), count=2, replace=False, orders=0,
           ref=lambda *_: jnp.array([[1, 0], [0, 1]], jnp.int32)),
    sample("rand_binomial", n=3, shape=(4,), orders=0, ref=lambda: jax.random.binomial(
        as_key(ZEROS), np.float32(3), np.float32(0.5), (4,), jnp.float32)),
    sample("rand_gamma", SHAPES, fixed(0.7), orders=0,
           ref=lambda k, theta: jnp.exp(moved_with(ZEROS, k)) * theta),
    sample("rand_beta", fixed(0.7, 2.0), fixed(1.5), orders=0, ref=lambda a, b: jax.nn.sigmoid(
        jnp.subtract(*moved_with(ZEROS, jnp.stack([a, jnp.broadcast_to(b, (2,))]))))),
    sample("random_choice", real(2, 3), fixed([0.0, 1.0, 0.0], [0.0, 0.0, 2.0]), shape=(2, 1),
           ref=lambda x, w: jnp.broadcast_to(jnp.stack([x[0, 1], x[1, 2]])[:, None, None], (2, 2, 1))),
]
