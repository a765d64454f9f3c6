"""Samples of elementwise functions of one Variable."""

import jax
import jax.numpy as jnp
import numpy as np

from . import between, fixed, positive, real, sample


def half_away(x):
    """`x` rounded, halves away from zero."""
    return jnp.sign(x) * jnp.floor(jnp.abs(x) + 0.5)


def sinc(x):
    """sin(x) / x."""
    return jnp.sinc(x / jnp.pi)


def sinc_integral(x, order):
    """The derivative of sin(x) / x of some order: the integral over t from 0 to 1 of that of cos(x t), by
    Gauss's rule."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    t = (nodes + 1) / 2
    return jnp.sum(weights / 2 * t**order * jnp.cos(x[..., None] * t + order * jnp.pi / 2), axis=-1)


SAMPLES = [
    sample("abs", real(2, 3), ref=jnp.abs),
    sample("sign", real(2, 3), ref=jnp.sign, surrogate=True),
    sample("sign", fixed(-2.0, 0.0, 3.0), alpha=0.25, ref=lambda _: jnp.array([-1.0, 0.25, 1.0]), surrogate=True),
    sample("floor", real(2, 3), ref=jnp.floor, surrogate=True),
    sample("ceil", real(2, 3), ref=jnp.ceil, surrogate=True),
    sample("round", fixed(-2.5, -1.5, -0.5, -0.2, 0.5, 0.7, 1.5, 2.5), ref=half_away, surrogate=True),
    sample("square", real(2, 3), ref=lambda x: x * x),
    sample("one_minus_square", real(2, 3), ref=lambda x: 1 - x * x),
    sample("reciprocal", real(2, 3), ref=lambda x: 1 / x),
    sample("sqrt", positive(2, 3), ref=jnp.sqrt),
    sample("cbrt", real(2, 3), ref=jnp.cbrt),
    sample("exp", real(2, 3), ref=jnp.exp),
    sample("log", positive(2, 3), ref=jnp.log),
    sample("erf", real(2, 3), ref=jax.scipy.special.erf),
    sample("sin", real(2, 3), ref=jnp.sin),
    sample("cos", real(2, 3), ref=jnp.cos),
    sample("tan", between(-1.4, 1.4, 2, 3), ref=jnp.tan),
    sample("asin", between(-1.0, 1.0, 2, 3), ref=jnp.arcsin),
    sample("acos", between(-1.0, 1.0, 2, 3), ref=jnp.arccos),
    sample("atan", real(2, 3), ref=jnp.arctan),
    sample("atan2", real(2, 3), real(2, 3), ref=jnp.arctan2),
    sample("atan2", real(2, 1), real(3), ref=jnp.arctan2, note="both broadcast"),
    sample("atan2", fixed(1.0, 1.0, -1.0, -1.0), fixed(2.0, -2.0, -2.0, 2.0), ref=jnp.arctan2, note="quadrants"),
    sample("over_square_sum", real(2, 3), real(2, 3), ref=lambda x0, x1: x0 / (x0 * x0 + x1 * x1)),
    sample("sinc", real(2, 3), ref=sinc),
    sample("sinc", fixed(-9.0, 0.0, 4.0), ref=lambda x: sinc_integral(x, 0), note="at 0"),
    sample("sinc_derivative", real(2, 3), ref=lambda x: jax.vmap(jax.vmap(jax.grad(sinc)))(x)),
    sample("sinc_derivative", fixed(-7.0, -2.4, -1.0, 0.0, 0.5, 2.6, 20.0), order=3, ref=lambda x: sinc_integral(x, 3)),
    sample("sinc_derivative", fixed(0.0, 0.3, 5.9, 6.1, 15.0), order=10, ref=lambda x: sinc_integral(x, 10), orders=1),
    sample("sinh", real(2, 3), ref=jnp.sinh),
    sample("cosh", real(2, 3), ref=jnp.cosh),
    sample("asinh", real(2, 3), ref=jnp.arcsinh),
    sample("acosh", between(1.1, 3.0, 2, 3), ref=jnp.arccosh),
    sample("atanh", between(-1.0, 1.0, 2, 3), ref=jnp.arctanh),
    sample("identity", real(2, 3), ref=lambda x: x),
    sample("copy", real(2, 3), ref=lambda x: x),
]
