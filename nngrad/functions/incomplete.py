"""Incomplete gamma and beta functions, differentiable in all arguments to any order, and exponential integrals. Integer
inputs become float32."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import jax.scipy.special
import numpy as np
from jax import lax

from ..graph import Array, Variable, composite, op
from ..graph.arguments import AtLeastOne, Size, as_int, coerced
from ..graph.signatures import explained_by_name
from .arithmetic import alike, floating, floating_pair, of_floats, widened
from .distributions import quadrature
from .special import digamma_difference, stirling_error

# ---------------------------------------------------------------- of the gamma distribution


@op(diagonal=True, broadcasts=True, unbounded=True, precision="high")
def incomplete_gamma(a: Array, x: Array, /, upper: bool = False) -> jax.Array:
    """The integral of `t^(a-1) exp(-t)` from 0 to `x`, or from `x` on, over Gamma(a).

    Args:
        a: The shape, positive; NaN results where it is not.
        x: Not negative, of a shape that broadcasts with that of `a`.
        upper: Whether the integral goes from `x` to infinity.
    """
    a, x = floating_pair(a, x)
    return lax.convert_element_type((lax.igammac if upper else lax.igamma)(widened(a), widened(x)), x.dtype)


@composite
def gammainc(a: Array, x: Array, /) -> Variable:
    """The regularized lower incomplete gamma function: the integral of `t^(a-1) exp(-t)` from 0 to x, over Gamma(a).

    Args:
        ...: Arguments as in `incomplete_gamma`.
    """
    y: Variable = incomplete_gamma(a, x)
    return y


@composite
def gammaincc(a: Array, x: Array, /) -> Variable:
    """The regularized upper incomplete gamma function, `1 - gammainc(a, x)`, accurate where it is small.

    Args:
        ...: Arguments as in `incomplete_gamma`.
    """
    y: Variable = incomplete_gamma(a, x, upper=True)
    return y


# ---------------------------------------------------------------- of the beta distribution


def _three(a: jax.Array, b: jax.Array, x: jax.Array) -> list[jax.Array]:
    """The arrays in their common shape and dtype, integers as float32."""
    shape = jnp.broadcast_shapes(a.shape, b.shape, x.shape)
    return [jnp.broadcast_to(floating(array), shape) for array in alike(a, b, x)]


@op(diagonal=True, broadcasts=True, unbounded=True, precision="high")
def betainc(a: Array, b: Array, x: Array, /) -> jax.Array:
    """The regularized incomplete beta function: the integral of `t^(a-1) (1-t)^(b-1)` from 0 to x, over B(a, b).

    Args:
        a: The first shape, positive.
        b: The second shape, positive, of a shape that broadcasts with that of `a`.
        x: From 0 to 1, of a shape that broadcasts with these; NaN results beyond.
    """
    a, b, x = _three(a, b, x)
    part, above = _part_of_beta(widened(a), widened(b), widened(x))
    return lax.convert_element_type(jnp.where(above, 1 + part, part), x.dtype)


@op(diagonal=True, broadcasts=True, unbounded=True, precision="high")
def beta_moment(a: Array, b: Array, x: Array, /, p: Size = 0, q: Size = 0) -> jax.Array:
    """The integral of `u^p v^q` over the part of a beta distribution below `x`, or minus that above.

    Here u is log(t) less its mean over the distribution, and v is log(1 - t) less its mean. The part is the one below
    where `x` is below the mean, so that nothing cancels. The integral is one over w = log(t / x), or
    log((1 - t) / (1 - x)), by the double exponential formula.

    Args:
        a: The first shape, positive.
        b: The second shape, positive, of a shape that broadcasts with that of `a`.
        x: From 0 to 1, of a shape that broadcasts with these.
        p: The power of u.
        q: The power of v.
    """
    a, b, x = _three(a, b, x)
    return lax.convert_element_type(_part_of_beta(widened(a), widened(b), widened(x), p, q)[0], x.dtype)


def _part_of_beta(a: jax.Array, b: jax.Array, x: jax.Array, p: int = 0, q: int = 0) -> tuple[jax.Array, jax.Array]:
    """`beta_moment`, and whether the part above `x` was integrated."""
    above = x * (a + b) > a
    a, b, x = jnp.where(above, b, a), jnp.where(above, a, b), jnp.where(above, 1 - x, x)
    inside, beyond = x > 0, jnp.where(x == 0, 0.0, np.nan)
    x = jnp.where(inside, x, 0.5)
    # One over the rough extent of the integrand, which decays as exp(a w) or faster.
    rate = lax.abs(a - lax.max(b - 1, lax.full_like(b, 0)) * x / (1 - x)) + lax.sqrt(b * x / 2) / (1 - x)
    scale = lax.stop_gradient(jnp.where(rate < 1, lax.max(1 / rate, 1 / a), 1 / rate))
    # x^a (1-x)^b / B(a, b): in the logarithms of gamma functions, large terms would cancel.
    exponent = a * lax.log(x * (a + b) / a) + b * lax.log((1 - x) * (a + b) / b)
    corrections = stirling_error(a + b) - stirling_error(a) - stirling_error(b)
    density = lax.exp(exponent + corrections) * lax.sqrt(a * b / (2 * math.pi * (a + b))) / (1 - x)
    mean_u, mean_v = (-digamma_difference.forward(*value) for value in ((a, b), (b, a)))
    places, weights = quadrature(x.dtype)
    a, b, x, above, mean_u, mean_v, factor = (
        lax.expand_dims(value, (value.ndim,)) for value in (a, b, x, above, mean_u, mean_v, scale)
    )
    w = -factor * places
    log_rest = lax.log1p(-x * lax.exp(w))
    u, v = w + lax.log(x) - mean_u, log_rest - mean_v
    terms = lax.exp(a * w + (b - 1) * (log_rest - lax.log1p(-x)))
    u, v = jnp.where(above, v, u), jnp.where(above, u, v)
    total = jnp.sum(terms * lax.integer_pow(u, p) * lax.integer_pow(v, q) * weights, axis=-1) * scale * density
    above = above[..., 0]
    return jnp.where(inside, jnp.where(above, -total, total), beyond), above


# ---------------------------------------------------------------- exponential integrals

expi = of_floats(
    jax.scipy.special.expi,
    "The exponential integral: that of `exp(t) / t` from minus infinity to x, as its principal value.", name="expi",
    wide=True, unbounded=True, precision="high",
)  # fmt: skip


@op(diagonal=True, unbounded=True, precision="high")
def exponential_integral(x: Array, /, *, order: AtLeastOne) -> jax.Array:
    """The exponential integral `expn(order, x)`.

    Args:
        x: Any shape, positive; integers are taken as float32.
        order: The order, from 1 on.
    """
    x = floating(x)
    return lax.convert_element_type(jax.scipy.special.expn(order, widened(x)), x.dtype)


@explained_by_name
def expn(n: int, x: Array) -> Variable:
    """The exponential integral E_n(x): the integral of `exp(-x t) / t^n` from 1 to infinity.

    Args:
        n: The order, from 1 on.
        x: Any shape, positive; integers are taken as float32.

    Raises:
        TypeError: `n` is not an int.
        ValueError: `n` is below 1.
    """
    return exponential_integral(x, order=coerced(as_int, n, "n"))
