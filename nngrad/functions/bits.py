"""Integer division and bitwise operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import jax
import jax.numpy as jnp
from jax import lax

from ..graph import Array, op
from ..graph.arguments import one_of
from .arithmetic import broadcast_pair

_OF_TWO: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "and": lax.bitwise_and, "or": lax.bitwise_or, "xor": lax.bitwise_xor, "left": lax.shift_left,
    "right": lax.shift_right_logical, "right with sign": lax.shift_right_arithmetic,
}  # fmt: skip
_OF_ONE: dict[str, Callable[[jax.Array], jax.Array]] = {
    "not": lax.bitwise_not,
    "count": lax.population_count,
    "leading zeros": lax.clz,
}


@op(diagonal=True, broadcasts=True)
def integer_quotient(x0: Array, x1: Array, /) -> jax.Array:
    """`x0 / x1` of integers, rounded towards 0; broadcast together.

    Args:
        x0: The dividend, of any shape and an integer dtype.
        x1: The divisor, of the same dtype and any shape that broadcasts. Division by 0 is undefined.

    Raises:
        TypeError: The dtypes are not as described, or differ.
    """
    _check_integers(x0, x1)
    return lax.div(*broadcast_pair(x0, x1))


@op(diagonal=True, broadcasts=True)
def bitwise(x0: Array, x1: Array, /, operation: Annotated[str, one_of(*_OF_TWO)]) -> jax.Array:
    """An operation on the bits of two whole numbers; broadcast together.

    Args:
        x0: Any shape and integer dtype, or booleans.
        x1: The same dtype, and any shape that broadcasts.
        operation: "and", "or", "xor"; or a shift of the bits of `x0` by `x1` positions: "left", "right", or "right with
            sign", which fills with the highest bit.

    Raises:
        TypeError: The dtypes are not as described, or differ.
    """
    _check_integers(x0, x1)
    return _OF_TWO[operation](*broadcast_pair(x0, x1))


@op(diagonal=True)
def bits_of(x: Array, /, operation: Annotated[str, one_of(*_OF_ONE)]) -> jax.Array:
    """An operation on the bits of a whole number.

    Args:
        x: Any shape and integer dtype, which the result shares.
        operation: "not" inverts the bits, "count" counts the set bits, "leading zeros" counts the bits above the
            highest set one.

    Raises:
        TypeError: `x` is not of an integer dtype.
    """
    _check_integers(x, x)
    return _OF_ONE[operation](x)


def _check_integers(x0: jax.Array, x1: jax.Array) -> None:
    if x0.dtype != x1.dtype or not (jnp.issubdtype(x0.dtype, jnp.integer) or x0.dtype == bool):
        raise TypeError(f"x0 and x1 must have the same integer dtype, got {x0.dtype.name} and {x1.dtype.name}. Convert "
                        "one of them with F.cast")
