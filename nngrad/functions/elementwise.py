"""Elementwise functions of one Variable: powers, exponentials, trigonometry, rounding.

Where a function of integers is not an integer, they are taken as float32.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax import lax

from ..graph import op
from .arithmetic import broadcast_pair, broadcast_scalar, floating


def _is_floating(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


# ---------------------------------------------------------------- sign and rounding


@op(elementwise=True)
def abs(x, /):
    """Absolute value."""
    return lax.abs(x) if jnp.issubdtype(x.dtype, jnp.signedinteger) or _is_floating(x) else x


@op(elementwise=True)
def sign(x, /, alpha: float = 1.0):
    """1 where `x` is positive, -1 where it is negative, `alpha` where it is 0."""
    x, at_zero = broadcast_scalar(x, alpha)
    return lax.select(lax.eq(x, lax.full_like(x, 0)), at_zero, lax.sign(x))


@op(elementwise=True)
def floor(x, /):
    """The largest whole number that is not above `x`."""
    return lax.floor(x) if _is_floating(x) else x


@op(elementwise=True)
def ceil(x, /):
    """The smallest whole number that is not below `x`."""
    return lax.ceil(x) if _is_floating(x) else x


@op(elementwise=True)
def round(x, /):
    """The nearest whole number; halves go away from zero."""
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO) if _is_floating(x) else x


# ---------------------------------------------------------------- powers and exponentials


@op(elementwise=True)
def square(x, /):
    """`x * x`."""
    return lax.mul(x, x)


@op(elementwise=True)
def reciprocal(x, /):
    """`1 / x`."""
    x = floating(x)
    return lax.div(lax.full_like(x, 1), x)


@op(elementwise=True)
def sqrt(x, /):
    """Square root."""
    return lax.sqrt(floating(x))


@op(elementwise=True)
def exp(x, /):
    """e to the power of `x`."""
    return lax.exp(floating(x))


@op(elementwise=True)
def log(x, /):
    """Natural logarithm."""
    return lax.log(floating(x))


@op(elementwise=True)
def erf(x, /):
    """The error function: 2/sqrt(pi) times the integral of exp(-t^2) from 0 to `x`."""
    return lax.erf(floating(x))


# ---------------------------------------------------------------- trigonometry


@op(elementwise=True)
def sin(x, /):
    """Sine of `x` in radians."""
    return lax.sin(floating(x))


@op(elementwise=True)
def cos(x, /):
    """Cosine of `x` in radians."""
    return lax.cos(floating(x))


@op(elementwise=True)
def tan(x, /):
    """Tangent of `x` in radians."""
    return lax.tan(floating(x))


@op(type_name="ASin", elementwise=True)
def asin(x, /):
    """The angle in [-pi/2, pi/2] whose sine is `x`."""
    return lax.asin(floating(x))


@op(type_name="ACos", elementwise=True)
def acos(x, /):
    """The angle in [0, pi] whose cosine is `x`."""
    return lax.acos(floating(x))


@op(type_name="ATan", elementwise=True)
def atan(x, /):
    """The angle in [-pi/2, pi/2] whose tangent is `x`."""
    return lax.atan(floating(x))


@op(type_name="ATan2", elementwise=True, broadcasts=True)
def atan2(x0, x1, /):
    """The angle in [-pi, pi] of the point with abscissa `x1` and ordinate `x0`, broadcast together."""
    x0, x1 = broadcast_pair(x0, x1)
    return lax.atan2(floating(x0), floating(x1))


@op(elementwise=True)
def sinc(x, /):
    """`sin(x) / x`, and 1 at 0: not normalised by pi."""
    return _sinc_derivative(floating(x), 0)


@op(elementwise=True)
def sinc_derivative(x, /, order: int = 1):
    """The derivative of `sin(x) / x` of some order, accurate near 0 too."""
    if order < 0:
        raise ValueError(f"order must not be negative, got {order}")
    return _sinc_derivative(floating(x), order)


def _sinc_derivative(x: Any, order: int) -> Any:
    """S_n, the n-th derivative of sin(x) / x.

    Differentiating x S_0 = sin x n times gives x S_n + n S_(n-1) = sin(x + n pi/2). Going up in n that way
    multiplies errors by n / x, so near 0 the power series is summed:

        S_n = sum over k with 2k >= n of (-1)^k x^(2k - n) / ((2k + 1) (2k - n)!)
    """
    dtype = x.dtype
    if dtype.itemsize == 2:
        x = lax.convert_element_type(x, jnp.float32)
    limit = 1.0 + order / 2  # Errors grow little on both sides of it: below by cosh(limit), above by n^n / n! or so.
    small = lax.lt(lax.abs(x), lax.full_like(x, limit))
    near = lax.select(small, x, lax.full_like(x, 0))
    far = lax.select(small, lax.full_like(x, 1), x)
    odd = order % 2
    powers = range(odd, odd + 2 * (12 + order), 2)
    series = lax.full_like(x, 0)
    squared = lax.mul(near, near)
    for p in reversed(powers):
        sign = -1 if (p + order) // 2 % 2 else 1
        series = series * squared + sign / ((p + order + 1) * math.factorial(p))
    if odd:
        series = series * near
    waves = (lax.sin(far), lax.cos(far))
    value = waves[0] / far
    for n in range(1, order + 1):
        wave = waves[n % 2] if n % 4 < 2 else -waves[n % 2]
        value = (wave - n * value) / far
    return lax.convert_element_type(lax.select(small, series, value), dtype)


# ---------------------------------------------------------------- hyperbolic functions


@op(elementwise=True)
def sinh(x, /):
    """Hyperbolic sine."""
    return lax.sinh(floating(x))


@op(elementwise=True)
def cosh(x, /):
    """Hyperbolic cosine."""
    return lax.cosh(floating(x))


@op(type_name="ASinh", elementwise=True)
def asinh(x, /):
    """The number whose hyperbolic sine is `x`."""
    return lax.asinh(floating(x))


@op(type_name="ACosh", elementwise=True)
def acosh(x, /):
    """The number that is not negative and whose hyperbolic cosine is `x`."""
    return lax.acosh(floating(x))


@op(type_name="ATanh", elementwise=True)
def atanh(x, /):
    """The number whose hyperbolic tangent is `x`."""
    return lax.atanh(floating(x))


# ---------------------------------------------------------------- nothing


@op(elementwise=True, linear=True)
def identity(x, /):
    """`x` unchanged."""
    return x
