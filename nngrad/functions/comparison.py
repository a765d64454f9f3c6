"""Comparisons and logic: 1 where a statement holds, 0 elsewhere, in the floating dtype of the inputs
(float32 for integers)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from ..graph import Op, op
from .arithmetic import broadcast_pair, broadcast_scalar


def _as_number(truth: Any, like: Any) -> Any:
    dtype = like.dtype if jnp.issubdtype(like.dtype, jnp.floating) else jnp.float32
    return lax.convert_element_type(truth, dtype)


def _truth(x: Any) -> Any:
    """True where `x` is not 0."""
    return x if x.dtype == bool else lax.ne(x, lax.full_like(x, 0))


# ---------------------------------------------------------------- comparisons


def _comparison(name: str, type_name: str, symbol: str, compare: Callable[..., Any]) -> tuple[Op, Op]:
    """The op `x0 symbol x1` and the op `x0 symbol val`."""

    def both(x0, x1, /):
        return _as_number(truth(x0, x1), broadcast_pair(x0, x1)[0])

    def scalar(x0, /, val: float = 1.0):
        return _as_number(scalar_truth(x0, val), x0)

    def truth(x0: Any, x1: Any) -> Any:
        return compare(*broadcast_pair(x0, x1))

    def scalar_truth(x0: Any, val: float) -> Any:
        return compare(*broadcast_scalar(x0, val))

    both.__name__, scalar.__name__ = name, f"{name}_scalar"
    both.__doc__ = f"1 where `x0 {symbol} x1`, else 0; broadcast together."
    scalar.__doc__ = f"1 where `x0 {symbol} val`, else 0."
    return (
        op(type_name=type_name, elementwise=True, broadcasts=True, truth=truth)(both),
        op(type_name=f"{type_name}Scalar", elementwise=True, truth=scalar_truth)(scalar),
    )


equal, equal_scalar = _comparison("equal", "Equal", "==", lax.eq)
not_equal, not_equal_scalar = _comparison("not_equal", "NotEqual", "!=", lax.ne)
less, less_scalar = _comparison("less", "Less", "<", lax.lt)
less_equal, less_equal_scalar = _comparison("less_equal", "LessEqual", "<=", lax.le)
greater, greater_scalar = _comparison("greater", "Greater", ">", lax.gt)
greater_equal, greater_equal_scalar = _comparison("greater_equal", "GreaterEqual", ">=", lax.ge)


# ---------------------------------------------------------------- logic: a number is true if it is not 0


def _connective(name: str, type_name: str, word: str, connect: Callable[..., Any]) -> tuple[Op, Op]:
    """The op `x0 word x1` and the op `x0 word val`."""

    def both(x0, x1, /):
        return _as_number(truth(x0, x1), broadcast_pair(x0, x1)[0])

    def scalar(x0, /, val: bool):
        return _as_number(scalar_truth(x0, val), x0)

    def truth(x0: Any, x1: Any) -> Any:
        return connect(*broadcast_pair(_truth(x0), _truth(x1)))

    def scalar_truth(x0: Any, val: bool) -> Any:
        return connect(_truth(x0), lax.full_like(x0, val, dtype=bool))

    both.__name__, scalar.__name__ = name, f"{name}_scalar"
    both.__doc__ = f"1 where `x0 != 0 {word} x1 != 0`, else 0; broadcast together."
    scalar.__doc__ = f"1 where `x0 != 0 {word} val`, else 0."
    return (
        op(type_name=type_name, elementwise=True, broadcasts=True, truth=truth)(both),
        op(type_name=f"{type_name}Scalar", elementwise=True, truth=scalar_truth)(scalar),
    )


logical_and, logical_and_scalar = _connective("logical_and", "LogicalAnd", "and", lax.bitwise_and)
logical_or, logical_or_scalar = _connective("logical_or", "LogicalOr", "or", lax.bitwise_or)
logical_xor, logical_xor_scalar = _connective("logical_xor", "LogicalXor", "xor", lax.bitwise_xor)


def _not(x0: Any) -> Any:
    return lax.bitwise_not(_truth(x0))


@op(elementwise=True, truth=_not)
def logical_not(x0, /):
    """1 where `x0 == 0`, else 0."""
    return _as_number(_not(x0), x0)
