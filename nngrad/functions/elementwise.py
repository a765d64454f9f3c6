"""Elementwise functions of one Variable: powers, exponentials, trigonometry, rounding."""

from __future__ import annotations

from jax import lax

from ..graph import op
from .arithmetic import floating


@op(elementwise=True)
def abs(x, /):
    """Absolute value."""
    return lax.abs(x)


@op(elementwise=True)
def exp(x, /):
    """e to the power of `x`."""
    return lax.exp(floating(x))


@op(elementwise=True)
def log(x, /):
    """Natural logarithm."""
    return lax.log(floating(x))


@op(elementwise=True)
def sqrt(x, /):
    """Square root."""
    return lax.sqrt(floating(x))


@op(elementwise=True)
def sin(x, /):
    """Sine of `x` in radians."""
    return lax.sin(floating(x))


@op(elementwise=True)
def cos(x, /):
    """Cosine of `x` in radians."""
    return lax.cos(floating(x))


@op(elementwise=True, linear=True)
def identity(x, /):
    """`x` unchanged."""
    return x
