"""Samples of special functions."""

import math

import jax
import jax.numpy as jnp
import jax.scipy.special as jss
import numpy as np

from . import between, fixed, positive, real, sample


def integral_of_the_tail(x):
    """exp(x^2) erfc(x): 2/sqrt(pi) times the integral over t > 0 of exp(-t^2 - 2 x t), by Gauss's rule."""
    nodes, weights = np.polynomial.legendre.leggauss(120)
    t = 3.25 * (nodes + 1)
    return 2 / jnp.sqrt(jnp.pi) * jnp.sum(3.25 * weights * jnp.exp(-(t**2) - 2 * x[..., None] * t), axis=-1)


def digamma_derivatives(order):
    """The derivative of digamma of some order, by its series: a sum of (-1)^(n+1) n! / (k + x)^(n+1), whose tail is
    summed by Euler and Maclaurin."""
    n, count = order, 60

    def function(x):
        k = jnp.arange(count)
        far = x + count
        power = far**-n
        tail = power / n + power / far / 2 + (n + 1) * power / far**2 / 12
        tail -= (n + 1) * (n + 2) * (n + 3) * power / far**4 / 720
        tail += (n + 1) * (n + 2) * (n + 3) * (n + 4) * (n + 5) * power / far**6 / 30240
        terms = jnp.sum((k + x[..., None]) ** -(n + 1.0), axis=-1)
        return (-1) ** (n + 1) * float(np.prod(np.arange(1, n + 1))) * (terms + tail)

    return function


def log_gamma(x):
    """lgamma below 0 too, by reflection."""
    return jnp.where(x > 0, jss.gammaln(jnp.abs(x)),
                     jnp.log(jnp.pi) - jnp.log(jnp.abs(jnp.sin(jnp.pi * x))) - jss.gammaln(1 + jnp.abs(x)))


def repeated_integral(n):
    """exp(x^2) times the integral of 2 / sqrt(pi) (t - x)^n / n! exp(-t^2) from x on, with s = t - x."""
    s, weights = np.polynomial.legendre.leggauss(400)
    s, weights = 6 * (s + 1), 6 * weights * 2 / math.sqrt(math.pi) / math.factorial(n)

    def function(x):
        return jnp.sum(weights * s**n * jnp.exp(-s * s - 2 * s * x[..., None]), axis=-1)

    return function


SAMPLES = [
    sample("log1p", between(-0.9, 2.0, 2, 3), ref=jnp.log1p),
    sample("expm1", real(2, 3), ref=jnp.expm1),
    sample("log2", positive(2, 3), ref=jnp.log2),
    sample("log10", positive(2, 3), ref=jnp.log10),
    sample("rsqrt", positive(2, 3), ref=lambda x: x**-0.5),
    sample("logaddexp", real(2, 3), real(2, 3), ref=lambda x, y: jnp.log(jnp.exp(x) + jnp.exp(y))),
    sample("logaddexp", real(2, 1), real(3), ref=lambda x, y: jnp.log(jnp.exp(x) + jnp.exp(y)), note="both broadcast"),
    sample("xlogy", real(2, 3), positive(2, 3), ref=lambda x, y: x * jnp.log(y)),
    sample("xlogy", real(2, 1), positive(3), ref=lambda x, y: x * jnp.log(y), note="both broadcast"),
    sample("xlog1py", real(2, 3), positive(2, 3), ref=lambda x, y: x * jnp.log(1 + y)),
    sample("erfc", real(2, 3), ref=lambda x: 1 - jss.erf(x)),
    sample("erfcx", real(2, 3), ref=integral_of_the_tail),
    sample("erfcx_integral", real(2, 3), order=1, ref=repeated_integral(1)),
    sample("erfcx_integral", between(1.0, 8.0, 6), order=3, ref=repeated_integral(3), note="far"),
    sample("betaln", positive(2, 3), positive(2, 3),
           ref=lambda a, b: jss.gammaln(a) + jss.gammaln(b) - jss.gammaln(a + b)),
    sample("digamma_difference", positive(2, 1), positive(3), ref=lambda a, b: jss.digamma(a + b) - jss.digamma(a)),
    sample("digamma_difference", fixed(-0.7, 2.5, 0.4), fixed(0.3, -1.2, -1.5), order=2,
           ref=lambda a, b: digamma_derivatives(2)(a + b) - digamma_derivatives(2)(a), note="either sign"),
    sample("erfcx", between(3.5, 8.0, 6), ref=integral_of_the_tail, note="far"),
    sample("erfinv", between(-0.9, 0.9, 2, 3), ref=jss.erfinv),
    sample("erfcinv", between(0.1, 1.9, 2, 3), ref=lambda x: jss.erfinv(1 - x)),
    sample("ndtr", real(2, 3), ref=lambda x: (1 + jss.erf(x / jnp.sqrt(2.0))) / 2),
    sample("ndtri", between(0.1, 0.9, 2, 3), ref=lambda x: jnp.sqrt(2.0) * jss.erfinv(2 * x - 1)),
    sample("log_ndtr", real(2, 3), ref=lambda x: jnp.log((1 + jss.erf(x / jnp.sqrt(2.0))) / 2)),
    sample("lgamma", positive(2, 3), ref=jss.gammaln),
    sample("lgamma", between(-2.9, -2.1, 3), ref=log_gamma, note="below 0"),
    sample("digamma", positive(2, 3), ref=jss.digamma),
    sample("digamma", between(-1.9, -1.1, 3), ref=lambda x: jax.vmap(jax.grad(log_gamma))(x), note="below 0"),
    sample("digamma_derivative", positive(2, 3), order=1, ref=digamma_derivatives(1)),
    sample("digamma_derivative", positive(2, 3), order=4, ref=digamma_derivatives(4)),
    sample("digamma_derivative", fixed(-0.7, -1.4, -2.5), order=2,
           ref=lambda x: jax.vmap(jax.grad(jax.grad(jax.grad(log_gamma))))(x), orders=2, note="below 0"),
    sample("hurwitz_zeta", positive(2, 3), x=3.0, ref=lambda q: digamma_derivatives(2)(q) / -2),
]
