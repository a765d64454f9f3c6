"""NaN and infinity, remainders, and bit shifts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..graph import Array, Op, Variable, composite, op
from ..graph.arguments import Scalar, one_of
from .arithmetic import alike, broadcast_pair, floating, is_floating, number_pair, widened
from .array import filled_like
from .indexing import where

# ---------------------------------------------------------------- NaN and infinity


def _is_nan(x0: jax.Array) -> jax.Array:
    return lax.ne(x0, x0)


def _is_infinite(x0: jax.Array) -> jax.Array:
    return lax.eq(lax.abs(floating(x0)), lax.full_like(x0, np.inf, dtype=floating(x0).dtype))


@op(type_name="IsNaN", elementwise=True, diagonal=True, predicate=_is_nan)
def isnan(x0: Array, /) -> jax.Array:
    """1 where an element is NaN, else 0; in the floating dtype of `x0`.

    Args:
        x0: Any shape; integers are never NaN, and the result is float32.
    """
    return lax.convert_element_type(_is_nan(x0), floating(x0).dtype)


@op(type_name="IsInf", elementwise=True, diagonal=True, predicate=_is_infinite)
def isinf(x0: Array, /) -> jax.Array:
    """1 where an element is infinite, of either sign, else 0; in the floating dtype of `x0`.

    Args:
        x0: Any shape; integers are never infinite, and the result is float32.
    """
    return lax.convert_element_type(_is_infinite(x0), floating(x0).dtype)


@composite
def reset_nan(x0: Array, /, val: Scalar = 0) -> Variable:
    """`x0` with each NaN replaced by `val`. There the gradient is 0, even if the incoming one is NaN or infinite.

    Args:
        val: The replacement for NaN.
    """
    return where(isnan(x0), filled_like(x0, val), x0) if x0.spec.differentiable else x0


@composite
def reset_inf(x0: Array, /, val: Scalar = 0) -> Variable:
    """`x0` with each infinity replaced by `val`. There the gradient is 0, even if the incoming one is NaN or infinite.

    Args:
        val: The replacement for an infinity of either sign.
    """
    return where(isinf(x0), filled_like(x0, val), x0) if x0.spec.differentiable else x0


# ---------------------------------------------------------------- remainders


@op(elementwise=True, diagonal=True, broadcasts=True, unbounded=True)
def mod2(x0: Array, x1: Array, /, fmod: bool = False) -> jax.Array:
    """The remainder of `x0 / x1`, broadcast together.

    For floats it has the sign of `x0`, as C's `fmod`; for integers that of `x1`, unless `fmod`. The derivative with
    respect to `x0` is 1; that with respect to `x1` is the negated quotient, rounded towards 0.

    Args:
        x0: The dividend, of any shape.
        x1: The divisor, of any shape that broadcasts with that of `x0`. Division by 0 gives NaN for floats, and is
            undefined for integers.
        fmod: Whether integers too have the sign of `x0`.
    """
    x0, x1 = number_pair(x0, x1)
    y = lax.rem(x0, x1)
    if is_floating(y) or fmod or jnp.issubdtype(y.dtype, jnp.unsignedinteger):
        return y
    zero = lax.full_like(y, 0)
    other_sign = lax.bitwise_and(lax.ne(y, zero), lax.ne(lax.lt(y, zero), lax.lt(x1, zero)))
    return lax.select(other_sign, lax.add(y, x1), y)


@op(elementwise=True, diagonal=True, broadcasts=True)
def whole_quotient(x0: Array, x1: Array, /) -> jax.Array:
    """`x0 / x1` of floats, rounded towards 0; broadcast together.

    Args:
        x0: The dividend, of any shape; integers are taken as float32.
        x1: The divisor, of any shape that broadcasts with that of `x0`; integers are taken as float32.
    """
    x0, x1 = broadcast_pair(floating(x0), floating(x1))
    wide, divisor = widened(x0), widened(x1)
    # (x0 - remainder) / x1 is whole up to rounding, whereas x0 / x1 may be rounded up to the next whole number.
    whole = lax.round(lax.div(lax.sub(wide, lax.rem(wide, divisor)), divisor), lax.RoundingMethod.TO_NEAREST_EVEN)
    return lax.convert_element_type(whole, x0.dtype)


def _of_integers(function: Callable[..., jax.Array], doc: str) -> Op[[Array, Array], Variable]:
    """The op that applies `function` to two arrays of integers."""

    def forward(x0: Array, x1: Array, /) -> jax.Array:
        if not jnp.issubdtype(x0.dtype, jnp.integer) or not jnp.issubdtype(x1.dtype, jnp.integer):
            raise TypeError("x0 and x1 must have integer dtypes, got "
                            f"{x0.dtype.name} and {x1.dtype.name}. Convert them with F.cast")
        return function(*alike(x0, x1))

    forward.__name__, forward.__doc__ = function.__name__, doc
    return op(diagonal=True, broadcasts=True)(forward)


gcd = _of_integers(jnp.gcd, "The greatest common divisor of integers, not negative; broadcast together.")
lcm = _of_integers(jnp.lcm, "The least common multiple of integers, not negative; broadcast together.")


@op(diagonal=True, broadcasts=True)
def bit_shift(x: Array, shift: Array, /, direction: Annotated[str, one_of("LEFT", "RIGHT")] = "LEFT") -> jax.Array:
    """Integers with their bits shifted; zeros are shifted in.

    Args:
        x: Unsigned integers, of any shape.
        shift: The number of positions, of any shape that broadcasts with that of `x`; if it is at least the number of
            bits, the result is 0.
        direction: "LEFT", towards higher values, or "RIGHT".

    Returns:
        An array of the dtype of `x`.

    Raises:
        TypeError: `x` or `shift` does not hold integers, or `x` is signed.
    """
    if not jnp.issubdtype(x.dtype, jnp.unsignedinteger) or not jnp.issubdtype(shift.dtype, jnp.integer):
        raise TypeError(f"x must have an unsigned integer dtype and shift an integer dtype, got {x.dtype.name} and "
                        f"{shift.dtype.name}. Convert them with F.cast")
    most = np.iinfo(x.dtype).bits
    places = lax.convert_element_type(lax.clamp(shift.dtype.type(0), shift, shift.dtype.type(min(most, 127))), x.dtype)
    x, places = broadcast_pair(x, places)
    return (lax.shift_left if direction == "LEFT" else lax.shift_right_logical)(x, places)
