"""Running sums and products along an axis, and the recurrence that their gradients are."""

from __future__ import annotations

from typing import Any

from jax import lax

from ..graph import op
from ..graph.arguments import axis_of
from ..graph.axes import mixes
from .arithmetic import widened
from .reduction import whole


@op(type_name="CumSum", linear=True, axes=mixes("axis", none=0))
def cumsum(x, /, axis: int | None = None, exclusive: bool = False, reverse: bool = False):
    """Running sum along `axis` (None for the first).

    Args:
        exclusive: Leave each element itself out of its sum.
        reverse: Run from the end.
    """
    a = _scan_axis(x, axis)
    x = whole(x)
    y = lax.convert_element_type(lax.cumsum(widened(x), a, reverse=reverse), x.dtype)
    return moved(y, a, -1 if reverse else 1) if exclusive else y


@op(type_name="CumProd", axes=mixes("axis", none=0))
def cumprod(x, /, axis: int | None = None, exclusive: bool = False, reverse: bool = False):
    """Running product along `axis` (None for the first). Its gradient is exact where elements are 0.

    Args:
        exclusive: Leave each element itself out of its product.
        reverse: Run from the end.
    """
    a = _scan_axis(x, axis)
    y = lax.cumprod(whole(x), a, reverse=reverse)
    return moved(y, a, -1 if reverse else 1, fill=1) if exclusive else y


@op(axes=mixes("axis"))
def recurrence(a, b, /, axis: int = 0, reverse: bool = False):
    """`y` with `y[k] = a[k] y[k - 1] + b[k]` along `axis`, from `y[-1] = 0`; `reverse` runs from the end.

    A running product's gradient is one of these, and so is its own. It takes O(log n) steps: the maps
    `y -> a y + b` compose associatively (Blelloch, "Prefix sums and their applications", 1990).
    """
    if a.shape != b.shape:
        raise ValueError(f"a of shape {a.shape} and b of shape {b.shape} must have the same shape")
    n = _scan_axis(b, axis)

    def compose(first: Any, second: Any) -> Any:
        return lax.mul(second[0], first[0]), lax.add(lax.mul(second[0], first[1]), second[1])

    return lax.associative_scan(compose, (a, b), reverse=reverse, axis=n)[1]


@op(linear=True, axes=mixes("axis"))
def displace(x, /, axis: int = 0, by: int = 1):
    """The elements of `x` moved `by` places along `axis`; zeros move in, and what moves out is lost."""
    return moved(x, _scan_axis(x, axis), by)


def moved(x: Any, axis: int, by: int, fill: int = 0) -> Any:
    """`x` moved `by` places along `axis`, with `fill` in the places that fall free."""
    n = x.shape[axis]
    by = by if -n < by < n else (n if by > 0 else -n)
    return lax.pad(x, x.dtype.type(fill), [(by, -by, 0) if i == axis else (0, 0, 0) for i in range(x.ndim)])


def _scan_axis(x: Any, axis: int | None) -> int:
    return axis_of(0 if axis is None else axis, x.ndim)
