"""Samples of Bessel functions."""

import math

import jax.numpy as jnp
import numpy as np

from . import between, fixed, real, sample


def scaled_ratio(n):
    """exp(-|x|) I_n(x) / x^n by Poisson's integral over a period, where the mean of equal steps is exact."""
    t = np.pi * (np.arange(400) + 0.5) / 400
    factor = math.sqrt(math.pi) / (2**n * math.gamma(n + 0.5))

    def function(x):
        x = x[..., None]
        return factor * jnp.mean(jnp.exp(x * jnp.cos(t) - jnp.abs(x)) * jnp.sin(t) ** (2 * n), axis=-1)

    return function


def ratio(n):
    """I_n(x) / x^n, not scaled."""
    return lambda x: scaled_ratio(n)(x) * jnp.exp(jnp.abs(x))


def bessel(n):
    """J_n by Bessel's integral over a period, where the mean of equal steps is exact."""
    t = 2 * np.pi * np.arange(400) / 400
    return lambda x: jnp.mean(jnp.cos(n * t - x[..., None] * jnp.sin(t)), axis=-1)


def depth_moment(n):
    """The mean over a period of (1 - cos t)^n exp(-|x| (1 - cos t))."""
    depth = 1 - np.cos(np.pi * (np.arange(400) + 0.5) / 400)
    return lambda x: jnp.mean(depth**n * jnp.exp(-jnp.abs(x)[..., None] * depth), axis=-1)


SAMPLES = [
    sample("i0e_derivative", real(2, 3), order=1, ref=depth_moment(1)),
    sample("i0e_derivative", fixed(-29.0, 31.0, 200.0), order=2, ref=depth_moment(2), note="far"),
    sample("i0e", real(2, 3), ref=scaled_ratio(0)),
    sample("i0e", between(19.0, 40.0, 3), ref=scaled_ratio(0), note="far"),
    sample("i0", real(2, 3), ref=ratio(0)),
    sample("i1", real(2, 3), ref=lambda x: x * ratio(1)(x)),
    sample("bessel_ratio", real(2, 3), order=2, ref=ratio(2)),
    sample("bessel_first_kind", fixed(-19.0, 0.5, 12.0, 24.0, -26.0, 60.0), order=0, ref=bessel(0)),
    sample("bessel_first_kind", fixed(-30.0, -7.0, 24.9, 25.1, 80.0), order=5, ref=bessel(5)),
    sample("i1e", real(2, 3), ref=lambda x: x * scaled_ratio(1)(x)),
    sample("scaled_bessel_ratio", real(2, 3), order=1, ref=scaled_ratio(1)),
    sample("scaled_bessel_ratio", fixed(-19.0, 25.0, 12.0), order=2, ref=scaled_ratio(2), note="far"),
]
