"""Activation functions."""

from __future__ import annotations

from jax import lax

from ..graph import op
from .arithmetic import floating


@op(elementwise=True)
def tanh(x, /):
    """Hyperbolic tangent."""
    return lax.tanh(floating(x))
