"""Cumulative sums and products along an axis, and the linear recurrence that their gradients use."""

from __future__ import annotations

from typing import Any

import jax
from jax import lax

from ..graph import Array, WithAxis, op
from .arithmetic import check_same_shape, widened
from .axes import axis_of, mixes
from .reduction import whole


@op(type_name="CumSum", linear=True, axes=mixes("axis", none=0), precision="high")
def cumsum(x: Array, /, axis: int | None = None, exclusive: bool = False, reverse: bool = False) -> jax.Array:
    """Cumulative sum along an axis: `y[k] = x[0] + ... + x[k]`.

    Args:
        x: Any shape of at least one axis; booleans count as int32, and 16-bit floats are added in float32.
        axis: The axis; None for the first.
        exclusive: Whether each sum excludes the element at its own position.
        reverse: Whether the sum runs from the end.
    """
    a = axis_of(axis or 0, x.ndim)
    x = whole(x)
    y = lax.convert_element_type(lax.cumsum(widened(x), a, reverse=reverse), x.dtype)
    return moved_by(y, a, -1 if reverse else 1) if exclusive else y


@op(type_name="CumProd", axes=mixes("axis", none=0), precision="high")
def cumprod(x: Array, /, axis: int | None = None, exclusive: bool = False, reverse: bool = False) -> jax.Array:
    """Cumulative product along an axis: `y[k] = x[0] * ... * x[k]`.

    Its gradient contains no division, so it is right where elements are 0.

    Args:
        x: Any shape of at least one axis; booleans are taken as int32.
        axis: The axis; None for the first.
        exclusive: Whether each product excludes the element at its own position.
        reverse: Whether the product runs from the end.
    """
    a = axis_of(axis or 0, x.ndim)
    y = lax.cumprod(whole(x), a, reverse=reverse)
    return moved_by(y, a, -1 if reverse else 1, fill=1) if exclusive else y


@op(axes=mixes("axis"), precision="high")
def recurrence(a: Array, b: Array, /, axis: int = 0, reverse: bool = False) -> jax.Array:
    """The linear recurrence `y[k] = a[k] y[k - 1] + b[k]` along an axis, with `y[-1] = 0`.

    The gradient of `cumprod` is such a recurrence, and so is that of a recurrence. It takes O(log n) steps, since the
    maps `y -> a y + b` compose associatively (Blelloch, "Prefix sums and their applications", 1990).

    Args:
        a: The factor of the previous value, of any shape of at least one axis.
        b: The summand, in the shape of `a`.
        reverse: Whether it runs from the end, from `y[k + 1]` to `y[k]`.
    """
    check_same_shape(a=a, b=b)
    n = axis_of(axis, b.ndim)

    def compose(first: tuple[Any, Any], second: tuple[Any, Any]) -> tuple[jax.Array, jax.Array]:
        return lax.mul(second[0], first[0]), lax.add(lax.mul(second[0], first[1]), second[1])

    y: jax.Array = lax.associative_scan(compose, (a, b), reverse=reverse, axis=n)[1]
    return y


@op(linear=True, axes=mixes("axis"))
def displace(x: WithAxis, /, axis: int = 0, by: int = 1) -> jax.Array:
    """`x` shifted along an axis: `y[k] = x[k - by]`, and 0 where there is no such element.

    Args:
        by: The number of positions; towards the start if negative. Elements moved out are lost.
    """
    return moved_by(x, axis_of(axis, x.ndim), by)


def moved_by(x: jax.Array, axis: int, by: int, fill: int = 0) -> jax.Array:
    """`x` shifted `by` positions along `axis`; vacated positions hold `fill`."""
    n = x.shape[axis]
    by = by if -n < by < n else (n if by > 0 else -n)
    return lax.pad(x, x.dtype.type(fill), [(by, -by, 0) if i == axis else (0, 0, 0) for i in range(x.ndim)])
