"""Comparisons and logic: 1 where true, 0 elsewhere, in the floating dtype of the inputs (float32 for integers)."""

from __future__ import annotations

from collections.abc import Callable

import jax
from jax import lax

from ..graph import Array, Op, Variable, op
from ..graph.arguments import Scalar
from .arithmetic import broadcast_pair, broadcast_scalar, floating

Predicate = Callable[..., jax.Array]
"""A function of arrays that returns booleans."""
OfTwo = Op[[Array, Array], Variable]
OfNumber = Op[..., Variable]


def holds(x: jax.Array) -> jax.Array:
    """True where `x` is not 0."""
    return x if x.dtype == bool else lax.ne(x, lax.full_like(x, 0))


def _as_number(predicate: jax.Array, like: jax.Array) -> jax.Array:
    return lax.convert_element_type(predicate, floating(like).dtype)


def _of_two(name: str, predicate: Predicate, doc: str) -> OfTwo:
    """The op that is 1 where `predicate` holds for two arrays, else 0."""

    def forward(x0: Array, x1: Array, /) -> jax.Array:
        return _as_number(predicate(x0, x1), broadcast_pair(x0, x1)[0])

    forward.__name__, forward.__doc__ = name, doc
    return op(elementwise=True, diagonal=True, broadcasts=True, predicate=predicate)(forward)


# ---------------------------------------------------------------- comparisons


def _comparison(name: str, compare: Predicate, sign: str) -> tuple[OfTwo, OfNumber]:
    """The op that compares two arrays, broadcast together, and the one that compares an array with a number."""

    def predicate(x0: jax.Array, val: float) -> jax.Array:
        return compare(*broadcast_scalar(x0, val))

    def forward(x0: Array, /, val: Scalar = 1.0) -> jax.Array:
        return _as_number(predicate(x0, val), x0)

    forward.__name__ = f"{name}_scalar"
    forward.__doc__ = f"1 where `x0 {sign} val`, else 0."
    doc = f"1 where `x0 {sign} x1`, else 0; broadcast together."
    of_two = _of_two(name, lambda x0, x1: compare(*broadcast_pair(x0, x1)), doc)
    facts = op(elementwise=True, diagonal=True, predicate=predicate, numbers=("val",), of_variables=of_two)
    return of_two, facts(forward)


equal, equal_scalar = _comparison("equal", lax.eq, "==")
not_equal, not_equal_scalar = _comparison("not_equal", lax.ne, "!=")
less, less_scalar = _comparison("less", lax.lt, "<")
less_equal, less_equal_scalar = _comparison("less_equal", lax.le, "<=")
greater, greater_scalar = _comparison("greater", lax.gt, ">")
greater_equal, greater_equal_scalar = _comparison("greater_equal", lax.ge, ">=")


# ---------------------------------------------------------------- logic: a number is true if it is not 0


def _connective(name: str, connect: Predicate, of_two: str, of_number: str) -> tuple[OfTwo, OfNumber]:
    """The logical op for two arrays, broadcast together, and the one for an array and a boolean. The last two arguments
    are the conditions under which each is 1, for their docstrings."""

    def predicate(x0: jax.Array, val: bool) -> jax.Array:
        return connect(holds(x0), lax.full_like(x0, val, dtype=bool))

    def forward(x0: Array, /, val: bool) -> jax.Array:
        return _as_number(predicate(x0, val), x0)

    forward.__name__ = f"{name}_scalar"
    forward.__doc__ = f"""1 where {of_number}, else 0.

    Args:
        val: The other boolean.
    """
    return (
        _of_two(
            name, lambda x0, x1: connect(*broadcast_pair(holds(x0), holds(x1))),
            f"1 where {of_two}, else 0; broadcast together.",
        ),
        op(elementwise=True, diagonal=True, predicate=predicate)(forward),
    )  # fmt: skip


logical_and, logical_and_scalar = _connective(
    "logical_and", lax.bitwise_and, "neither `x0` nor `x1` is 0", "`x0` is not 0 and `val` is True"
)
logical_or, logical_or_scalar = _connective(
    "logical_or", lax.bitwise_or, "`x0` or `x1` is not 0, or both are not", "`x0` is not 0 or `val` is True"
)
logical_xor, logical_xor_scalar = _connective(
    "logical_xor", lax.bitwise_xor, "just one of `x0` and `x1` is 0",
    "either `x0` is not 0 or `val` is True, and not both",
)  # fmt: skip


def _not(x0: jax.Array) -> jax.Array:
    return lax.bitwise_not(holds(x0))


@op(elementwise=True, diagonal=True, predicate=_not)
def logical_not(x0: Array, /) -> jax.Array:
    """1 where `x0` is 0, else 0."""
    return _as_number(_not(x0), x0)
