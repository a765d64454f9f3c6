"""Incomplete gamma functions and exponential integrals.

Their parameters are plain numbers, because derivatives in them have no closed form. Integer inputs become float32.
"""

from __future__ import annotations

import jax
import jax.scipy.special
from jax import lax

from ..graph import Array, op
from ..graph.arguments import AtLeastOne, Positive
from .arithmetic import floating, of_floats, widened


@op(diagonal=True, unbounded=True, precision="high")
def gammainc(x: Array, /, a: Positive) -> jax.Array:
    """The regularized lower incomplete gamma function: the integral of `t^(a-1) exp(-t)` from 0 to x, over Gamma(a).

    Args:
        x: Any shape, not negative; integers are taken as float32.
        a: The exponent, above 0. It is a number, since the derivative in it has no closed form.
    """
    x = floating(x)
    wide = widened(x)
    return lax.convert_element_type(lax.igamma(lax.full_like(wide, a), wide), x.dtype)


@op(diagonal=True, unbounded=True, precision="high")
def gammaincc(x: Array, /, a: Positive) -> jax.Array:
    """The regularized upper incomplete gamma function, `1 - gammainc(x, a)`, accurate where it is small.

    Args:
        x: Any shape, not negative; integers are taken as float32.
        a: The exponent, above 0.
    """
    x = floating(x)
    wide = widened(x)
    return lax.convert_element_type(lax.igammac(lax.full_like(wide, a), wide), x.dtype)


expi = of_floats(
    jax.scipy.special.expi,
    "The exponential integral: that of `exp(t) / t` from minus infinity to x, as its principal value.", name="expi",
    wide=True, unbounded=True, precision="high",
)  # fmt: skip


@op(diagonal=True, unbounded=True, precision="high")
def expn(x: Array, /, n: AtLeastOne) -> jax.Array:
    """The exponential integral E_n(x): the integral of `exp(-x t) / t^n` from 1 to infinity.

    Args:
        x: Any shape, positive; integers are taken as float32.
        n: The order, from 1 on.
    """
    x = floating(x)
    return lax.convert_element_type(jax.scipy.special.expn(n, widened(x)), x.dtype)
