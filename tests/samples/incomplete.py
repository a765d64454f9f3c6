"""Samples of incomplete gamma functions and exponential integrals."""

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln, digamma, gammaln

from . import between, positive, sample

NODES, WEIGHTS = np.polynomial.legendre.leggauss(160)
NODES, WEIGHTS = (NODES + 1) / 2, WEIGHTS / 2


def integral(function, x):
    """That of `function` from 0 to x, by Gauss's rule in the fourth root."""
    t = x[..., None] * NODES**4
    return jnp.sum(function(t) * 4 * NODES**3 * WEIGHTS, axis=-1) * x


def lower_gamma(a, x):
    a, x = jnp.broadcast_arrays(a, x)
    return integral(lambda t: t ** (a[..., None] - 1) * jnp.exp(-t), x) / jnp.exp(gammaln(a))


def lower_beta(a, b, x):
    a, b, x = jnp.broadcast_arrays(a, b, x)
    return integral(lambda t: t ** (a[..., None] - 1) * (1 - t) ** (b[..., None] - 1), x) / jnp.exp(betaln(a, b))


def moment(p, q):
    """Powers of logarithms less their means, over the part of the beta distribution below x, or minus that above."""

    def function(a, b, x):
        a, b, x = jnp.broadcast_arrays(a, b, x)
        u, v = digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
        above = x * (a + b) > a
        first, second, end = (jnp.where(above, *pair) for pair in ((b, a), (a, b), (1 - x, x)))

        def integrand(t):
            s, r = (jnp.where(above[..., None], *pair) for pair in ((1 - t, t), (t, 1 - t)))
            powers = (jnp.log(s) - u[..., None]) ** p * (jnp.log(r) - v[..., None]) ** q
            return powers * t ** (first[..., None] - 1) * (1 - t) ** (second[..., None] - 1)

        return jnp.where(above, -1, 1) * integral(integrand, end) / jnp.exp(betaln(a, b))

    return function


def exponential_integral(x, n):
    """The integral of exp(-x / t) t^(n-2) from 0 to 1."""
    t = NODES**2
    return jnp.sum(jnp.exp(-x[..., None] / t) * t ** (n - 2) * 2 * NODES * WEIGHTS, axis=-1)


def principal_value(x):
    """Euler's constant, the logarithm of |x|, and the integral of (exp(t) - 1) / t from 0 to x."""
    return np.euler_gamma + jnp.log(jnp.abs(x)) + integral(lambda t: jnp.expm1(t) / t, x)


SAMPLES = [
    sample("incomplete_gamma", positive(2, 3), positive(3), ref=lower_gamma),
    sample("incomplete_gamma", positive(2, 3), positive(3), upper=True, ref=lambda a, x: 1 - lower_gamma(a, x)),
    sample("gammainc", positive(2, 3), positive(3), ref=lower_gamma, orders=1),
    sample("gammaincc", positive(2, 3), positive(3), ref=lambda a, x: 1 - lower_gamma(a, x), orders=1),
    sample("betainc", positive(2, 3), positive(3), between(0.2, 0.8, 3), ref=lower_beta),
    sample("beta_moment", between(1, 3, 2, 3), between(1, 3, 3), between(0.1, 0.2, 3), p=1, ref=moment(1, 0)),
    sample("beta_moment", between(1, 3, 2, 3), between(1, 3, 3), between(0.8, 0.9, 3), q=2, ref=moment(0, 2), orders=1),
    sample("expi", positive(2, 3), ref=principal_value),
    sample("exponential_integral", positive(2, 3), order=1, ref=lambda x: exponential_integral(x, 1)),
    sample("exponential_integral", positive(2, 3), order=3, ref=lambda x: exponential_integral(x, 3)),
]
