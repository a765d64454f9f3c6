"""Step functions with their true derivative 0, unlike `sign`, `floor`, `ceil` and `round`, which pass gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import jax
import jax.numpy as jnp
from jax import lax

from ..graph import KeptDtype, op
from ..graph.arguments import one_of
from .arithmetic import is_floating

_ROUNDINGS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "down": lax.floor,
    "up": lax.ceil,
    "to zero": jnp.trunc,
    "nearest": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "nearest even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
}


@op(diagonal=True)
def rounded(x: KeptDtype, /, to: Annotated[str, one_of(*_ROUNDINGS)] = "nearest even") -> jax.Array:
    """`x` rounded to a whole number. The derivative is 0, as it is almost everywhere.

    Args:
        to: Which one: "down", "up", "to zero", "nearest" (halves away from zero), or "nearest even".
    """
    return _ROUNDINGS[to](x) if is_floating(x) else x


@op(elementwise=True, diagonal=True)
def signum(x: KeptDtype, /) -> jax.Array:
    """1 where `x` is positive, -1 where it is negative, and 0 where it is 0. The derivative is 0."""
    return x if x.dtype == bool else lax.sign(x)
