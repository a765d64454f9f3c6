"""Samples of incomplete gamma functions and exponential integrals."""

import math

import jax.numpy as jnp
import numpy as np

from . import positive, sample

NODES, WEIGHTS = np.polynomial.legendre.leggauss(160)
NODES, WEIGHTS = (NODES + 1) / 2, WEIGHTS / 2


def integral(function, x):
    """That of `function` from 0 to x, by Gauss's rule in the fourth root."""
    t = x[..., None] * NODES**4
    return jnp.sum(function(t) * 4 * NODES**3 * WEIGHTS, axis=-1) * x


def lower_gamma(x, a):
    return integral(lambda t: t ** (a - 1) * jnp.exp(-t), x) / math.gamma(a)


def exponential_integral(x, n):
    """The integral of exp(-x / t) t^(n-2) from 0 to 1."""
    t = NODES**2
    return jnp.sum(jnp.exp(-x[..., None] / t) * t ** (n - 2) * 2 * NODES * WEIGHTS, axis=-1)


def principal_value(x):
    """Euler's constant, the logarithm of |x|, and the integral of (exp(t) - 1) / t from 0 to x."""
    return np.euler_gamma + jnp.log(jnp.abs(x)) + integral(lambda t: jnp.expm1(t) / t, x)


SAMPLES = [
    sample("gammainc", positive(2, 3), a=1.5, ref=lambda x: lower_gamma(x, 1.5)),
    sample("gammaincc", positive(2, 3), a=2.0, ref=lambda x: 1 - lower_gamma(x, 2.0)),
    sample("expi", positive(2, 3), ref=principal_value),
    sample("expn", positive(2, 3), n=1, ref=lambda x: exponential_integral(x, 1)),
    sample("expn", positive(2, 3), n=3, ref=lambda x: exponential_integral(x, 3)),
]
