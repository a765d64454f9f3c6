"""Comparisons and logic: 1 where a statement holds, 0 elsewhere, in the floating dtype of the inputs."""

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


def _comparison(name: str, type_name: str, symbol: str, compare: Callable[..., Any]) -> tuple[Op, Op]:
    """The op `x0 symbol x1` and the op `x symbol val`."""

    def both(x0, x1, /):
        return _as_number(compare(*broadcast_pair(x0, x1)), broadcast_pair(x0, x1)[0])

    def scalar(x0, /, val: float = 1):
        return _as_number(compare(*broadcast_scalar(x0, val)), x0)

    both.__name__, scalar.__name__ = name, f"{name}_scalar"
    both.__doc__ = f"1 where `x0 {symbol} x1`, else 0; broadcast together."
    scalar.__doc__ = f"1 where `x0 {symbol} val`, else 0."
    return op(type_name=type_name, elementwise=True, broadcasts=True)(both), op(type_name=f"{type_name}Scalar", elementwise=True)(scalar)


equal, equal_scalar = _comparison("equal", "Equal", "==", lax.eq)
not_equal, not_equal_scalar = _comparison("not_equal", "NotEqual", "!=", lax.ne)
less, less_scalar = _comparison("less", "Less", "<", lax.lt)
less_equal, less_equal_scalar = _comparison("less_equal", "LessEqual", "<=", lax.le)
greater, greater_scalar = _comparison("greater", "Greater", ">", lax.gt)
greater_equal, greater_equal_scalar = _comparison("greater_equal", "GreaterEqual", ">=", lax.ge)
