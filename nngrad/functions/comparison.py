"""Comparisons and logic: 1 where a statement holds, 0 elsewhere, in the floating dtype of the inputs
(float32 for integers)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax import lax

from ..graph import Op, op
from .arithmetic import broadcast_pair, broadcast_scalar, floating


def holds(x: Any) -> Any:
    """True where `x` is not 0."""
    return x if x.dtype == bool else lax.ne(x, lax.full_like(x, 0))


def _as_number(truth: Any, like: Any) -> Any:
    return lax.convert_element_type(truth, floating(like).dtype)


def _pair(
    name: str, truth: Callable[..., Any], scalar_truth: Callable[..., Any], scalar: Callable[..., Any], symbol: str
) -> tuple[Op, Op]:
    """The op `name` of two Variables, where `truth` holds, and the op `scalar` of a Variable and a number."""

    def both(x0, x1, /):
        return _as_number(truth(x0, x1), broadcast_pair(x0, x1)[0])

    both.__name__, scalar.__name__ = name, f"{name}_scalar"
    both.__doc__ = f"1 where `x0 {symbol} x1`, else 0; broadcast together."
    scalar.__doc__ = f"1 where `x0 {symbol} val`, else 0."
    return (
        op(elementwise=True, diagonal=True, broadcasts=True, truth=truth)(both),
        op(elementwise=True, diagonal=True, truth=scalar_truth)(scalar),
    )


# ---------------------------------------------------------------- comparisons


def _comparison(name: str, symbol: str, compare: Callable[..., Any]) -> tuple[Op, Op]:
    """The op `x0 symbol x1` and the op `x0 symbol val`."""

    def truth(x0: Any, x1: Any) -> Any:
        return compare(*broadcast_pair(x0, x1))

    def scalar_truth(x0: Any, val: float) -> Any:
        return compare(*broadcast_scalar(x0, val))

    def scalar(x0, /, val: float = 1.0):
        return _as_number(scalar_truth(x0, val), x0)

    return _pair(name, truth, scalar_truth, scalar, symbol)


equal, equal_scalar = _comparison("equal", "==", lax.eq)
not_equal, not_equal_scalar = _comparison("not_equal", "!=", lax.ne)
less, less_scalar = _comparison("less", "<", lax.lt)
less_equal, less_equal_scalar = _comparison("less_equal", "<=", lax.le)
greater, greater_scalar = _comparison("greater", ">", lax.gt)
greater_equal, greater_equal_scalar = _comparison("greater_equal", ">=", lax.ge)


# ---------------------------------------------------------------- logic: a number is true if it is not 0


def _connective(name: str, word: str, connect: Callable[..., Any]) -> tuple[Op, Op]:
    """The op `x0 word x1` and the op `x0 word val`."""

    def truth(x0: Any, x1: Any) -> Any:
        return connect(*broadcast_pair(holds(x0), holds(x1)))

    def scalar_truth(x0: Any, val: bool) -> Any:
        return connect(holds(x0), lax.full_like(x0, val, dtype=bool))

    def scalar(x0, /, val: bool):
        return _as_number(scalar_truth(x0, val), x0)

    return _pair(name, truth, scalar_truth, scalar, word)


logical_and, logical_and_scalar = _connective("logical_and", "and", lax.bitwise_and)
logical_or, logical_or_scalar = _connective("logical_or", "or", lax.bitwise_or)
logical_xor, logical_xor_scalar = _connective("logical_xor", "xor", lax.bitwise_xor)


def _not(x0: Any) -> Any:
    return lax.bitwise_not(holds(x0))


@op(elementwise=True, diagonal=True, truth=_not)
def logical_not(x0, /):
    """1 where `x0 == 0`, else 0."""
    return _as_number(_not(x0), x0)
