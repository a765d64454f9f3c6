"""Comparisons and logic: 1 where a statement holds, 0 elsewhere, in the floating dtype of the inputs
(float32 for integers)."""

from __future__ import annotations

from collections.abc import Callable

import jax
from jax import lax

from ..graph import Array, op
from .arithmetic import broadcast_pair, broadcast_scalar, floating

Truth = Callable[..., jax.Array]
"""Gives bools: where something holds of its arguments."""


def holds(x: jax.Array) -> jax.Array:
    """True where `x` is not 0."""
    return x if x.dtype == bool else lax.ne(x, lax.full_like(x, 0))


def _as_number(truth: jax.Array, like: jax.Array) -> jax.Array:
    return lax.convert_element_type(truth, floating(like).dtype)


# ---------------------------------------------------------------- comparisons


def _comparison(compare: Truth) -> Truth:
    """Where `compare` holds of two arrays, broadcast together."""
    return lambda x0, x1: compare(*broadcast_pair(x0, x1))


def _comparison_scalar(compare: Truth) -> Truth:
    """Where `compare` holds of an array and a number."""
    return lambda x0, val: compare(*broadcast_scalar(x0, val))


_equal = _comparison(lax.eq)
_equal_scalar = _comparison_scalar(lax.eq)


@op(elementwise=True, diagonal=True, broadcasts=True, predicate=_equal)
def equal(x0: Array, x1: Array, /) -> jax.Array:
    """1 where `x0 == x1`, else 0; broadcast together.

    Args:
        x0: The left side, of any shape.
        x1: The right side, of any shape that broadcasts with that of `x0`.
    """
    return _as_number(_equal(x0, x1), broadcast_pair(x0, x1)[0])


@op(elementwise=True, diagonal=True, predicate=_equal_scalar)
def equal_scalar(x0: Array, /, val: float = 1.0) -> jax.Array:
    """1 where `x0 == val`, else 0.

    Args:
        val: The number that it is compared with.
    """
    return _as_number(_equal_scalar(x0, val), x0)


_not_equal = _comparison(lax.ne)
_not_equal_scalar = _comparison_scalar(lax.ne)


@op(elementwise=True, diagonal=True, broadcasts=True, predicate=_not_equal)
def not_equal(x0: Array, x1: Array, /) -> jax.Array:
    """1 where `x0 != x1`, else 0; broadcast together.

    Args:
        x0: The left side, of any shape.
        x1: The right side, of any shape that broadcasts with that of `x0`.
    """
    return _as_number(_not_equal(x0, x1), broadcast_pair(x0, x1)[0])


@op(elementwise=True, diagonal=True, predicate=_not_equal_scalar)
def not_equal_scalar(x0: Array, /, val: float = 1.0) -> jax.Array:
    """1 where `x0 != val`, else 0.

    Args:
        val: The number that it is compared with.
    """
    return _as_number(_not_equal_scalar(x0, val), x0)


_less = _comparison(lax.lt)
_less_scalar = _comparison_scalar(lax.lt)


@op(elementwise=True, diagonal=True, broadcasts=True, predicate=_less)
def less(x0: Array, x1: Array, /) -> jax.Array:
    """1 where `x0 < x1`, else 0; broadcast together.

    Args:
        x0: The left side, of any shape.
        x1: The right side, of any shape that broadcasts with that of `x0`.
    """
    return _as_number(_less(x0, x1), broadcast_pair(x0, x1)[0])


@op(elementwise=True, diagonal=True, predicate=_less_scalar)
def less_scalar(x0: Array, /, val: float = 1.0) -> jax.Array:
    """1 where `x0 < val`, else 0.

    Args:
        val: The number that it is compared with.
    """
    return _as_number(_less_scalar(x0, val), x0)


_less_equal = _comparison(lax.le)
_less_equal_scalar = _comparison_scalar(lax.le)


@op(elementwise=True, diagonal=True, broadcasts=True, predicate=_less_equal)
def less_equal(x0: Array, x1: Array, /) -> jax.Array:
    """1 where `x0 <= x1`, else 0; broadcast together.

    Args:
        x0: The left side, of any shape.
        x1: The right side, of any shape that broadcasts with that of `x0`.
    """
    return _as_number(_less_equal(x0, x1), broadcast_pair(x0, x1)[0])


@op(elementwise=True, diagonal=True, predicate=_less_equal_scalar)
def less_equal_scalar(x0: Array, /, val: float = 1.0) -> jax.Array:
    """1 where `x0 <= val`, else 0.

    Args:
        val: The number that it is compared with.
    """
    return _as_number(_less_equal_scalar(x0, val), x0)


_greater = _comparison(lax.gt)
_greater_scalar = _comparison_scalar(lax.gt)


@op(elementwise=True, diagonal=True, broadcasts=True, predicate=_greater)
def greater(x0: Array, x1: Array, /) -> jax.Array:
    """1 where `x0 > x1`, else 0; broadcast together.

    Args:
        x0: The left side, of any shape.
        x1: The right side, of any shape that broadcasts with that of `x0`.
    """
    return _as_number(_greater(x0, x1), broadcast_pair(x0, x1)[0])


@op(elementwise=True, diagonal=True, predicate=_greater_scalar)
def greater_scalar(x0: Array, /, val: float = 1.0) -> jax.Array:
    """1 where `x0 > val`, else 0.

    Args:
        val: The number that it is compared with.
    """
    return _as_number(_greater_scalar(x0, val), x0)


_greater_equal = _comparison(lax.ge)
_greater_equal_scalar = _comparison_scalar(lax.ge)


@op(elementwise=True, diagonal=True, broadcasts=True, predicate=_greater_equal)
def greater_equal(x0: Array, x1: Array, /) -> jax.Array:
    """1 where `x0 >= x1`, else 0; broadcast together.

    Args:
        x0: The left side, of any shape.
        x1: The right side, of any shape that broadcasts with that of `x0`.
    """
    return _as_number(_greater_equal(x0, x1), broadcast_pair(x0, x1)[0])


@op(elementwise=True, diagonal=True, predicate=_greater_equal_scalar)
def greater_equal_scalar(x0: Array, /, val: float = 1.0) -> jax.Array:
    """1 where `x0 >= val`, else 0.

    Args:
        val: The number that it is compared with.
    """
    return _as_number(_greater_equal_scalar(x0, val), x0)


# ---------------------------------------------------------------- logic: a number is true if it is not 0


def _connective(connect: Truth) -> Truth:
    """Where `connect` holds of the truth of two arrays, broadcast together."""
    return lambda x0, x1: connect(*broadcast_pair(holds(x0), holds(x1)))


def _connective_scalar(connect: Truth) -> Truth:
    """Where `connect` holds of the truth of an array and a truth value."""
    return lambda x0, val: connect(holds(x0), lax.full_like(x0, val, dtype=bool))


_logical_and = _connective(lax.bitwise_and)
_logical_and_scalar = _connective_scalar(lax.bitwise_and)


@op(elementwise=True, diagonal=True, broadcasts=True, predicate=_logical_and)
def logical_and(x0: Array, x1: Array, /) -> jax.Array:
    """1 where neither `x0` nor `x1` is 0, else 0; broadcast together."""
    return _as_number(_logical_and(x0, x1), broadcast_pair(x0, x1)[0])


@op(elementwise=True, diagonal=True, predicate=_logical_and_scalar)
def logical_and_scalar(x0: Array, /, val: bool) -> jax.Array:
    """1 where `x0` is not 0 and `val` is True, else 0.

    Args:
        val: The other truth value.
    """
    return _as_number(_logical_and_scalar(x0, val), x0)


_logical_or = _connective(lax.bitwise_or)
_logical_or_scalar = _connective_scalar(lax.bitwise_or)


@op(elementwise=True, diagonal=True, broadcasts=True, predicate=_logical_or)
def logical_or(x0: Array, x1: Array, /) -> jax.Array:
    """1 where `x0` or `x1` is not 0, or both are not, else 0; broadcast together."""
    return _as_number(_logical_or(x0, x1), broadcast_pair(x0, x1)[0])


@op(elementwise=True, diagonal=True, predicate=_logical_or_scalar)
def logical_or_scalar(x0: Array, /, val: bool) -> jax.Array:
    """1 where `x0` is not 0 or `val` is True, else 0.

    Args:
        val: The other truth value.
    """
    return _as_number(_logical_or_scalar(x0, val), x0)


_logical_xor = _connective(lax.bitwise_xor)
_logical_xor_scalar = _connective_scalar(lax.bitwise_xor)


@op(elementwise=True, diagonal=True, broadcasts=True, predicate=_logical_xor)
def logical_xor(x0: Array, x1: Array, /) -> jax.Array:
    """1 where just one of `x0` and `x1` is 0, else 0; broadcast together."""
    return _as_number(_logical_xor(x0, x1), broadcast_pair(x0, x1)[0])


@op(elementwise=True, diagonal=True, predicate=_logical_xor_scalar)
def logical_xor_scalar(x0: Array, /, val: bool) -> jax.Array:
    """1 where either `x0` is not 0 or `val` is True, and not both, else 0.

    Args:
        val: The other truth value.
    """
    return _as_number(_logical_xor_scalar(x0, val), x0)


def _not(x0: jax.Array) -> jax.Array:
    return lax.bitwise_not(holds(x0))


@op(elementwise=True, diagonal=True, predicate=_not)
def logical_not(x0: Array, /) -> jax.Array:
    """1 where `x0` is 0, else 0."""
    return _as_number(_not(x0), x0)
