"""Weighted means, and biases, scales and interpolation along some axes."""

from __future__ import annotations

from ..graph import AnyShape, Array, Variable, composite
from ..graph.arguments import Axes, as_axes
from ..graph.leaf import as_variables
from ..graph.signatures import explained_by_name
from .arithmetic import broadcast_shape
from .axes import axes_of, axis_of
from .movement import reshape
from .reduction import mean, sum


@explained_by_name
def average(x: Array, axis: Axes | None = None, weights: Array | None = None, keepdims: bool = False) -> Variable:
    """Mean over axes, optionally weighted: `sum(x weights) / sum(weights)`.

    Args:
        x: Any shape; integers are taken as float32.
        axis: One axis or several; None for all.
        weights: Of the shape of `x`, or of that of the reduced axes, in ascending order; None for equal weights.
        keepdims: Whether reduced axes are kept, with size 1.

    Raises:
        ValueError: An axis is out of range, or the weights do not fit.
    """
    x, weights = as_variables((x, weights), ("x", "weights"), "average", 1)
    if weights is None:
        return mean(x, axis=axis, keepdims=keepdims)
    axes = axes_of(axis if axis is None else as_axes(axis), x.ndim, "average: axis")
    along = tuple(x.shape[a] for a in axes)
    if weights.shape not in (along, x.shape):
        raise ValueError(f"average: weights must have the shape of x, {x.shape}, or that of axes {axes}, {along}, got "
                         f"{weights.shape}")
    if weights.shape != x.shape:
        weights = reshape(weights, shape=tuple(n if i in axes else 1 for i, n in enumerate(x.shape)))
    total = sum(x * weights, axis=axes, keepdims=keepdims)
    weight = sum(weights, axis=axes, keepdims=keepdims)
    y: Variable = total / (weight if weight.shape == total.shape else reshape(weight, shape=(1,) * total.ndim))
    return y


@composite
def batch_l2_norm_squared(x: Array, /) -> Variable:
    """The sum of squares of each sample.

    Args:
        x: (batch, *sample).

    Returns:
        (batch,).

    Raises:
        ValueError: `x` has no axes.
    """
    if not x.ndim:
        raise ValueError("x must have a batch axis, got a scalar")
    return sum(x * x, axis=tuple(range(1, x.ndim)))


def _placed(x: Variable, y: Variable, axis: int) -> Variable:
    """`y` with axes of size 1 added, so that its own match those of `x` from `axis` on."""
    first = axis_of(axis, x.ndim, "axis") if x.ndim else 0
    if x.shape[first : first + y.ndim] != y.shape:
        raise ValueError(f"y must have the sizes of x {x.shape} from axis {axis} on, got shape {y.shape}")
    shape = (1,) * first + y.shape + (1,) * (x.ndim - first - y.ndim)
    return y if y.shape == shape else reshape(y, shape=shape)


@composite
def bias(x: AnyShape, y: Array, /, axis: int = 1) -> Variable:
    """`x + y`, where the axes of `y` match those of `x` from `axis` on.

    Args:
        y: One number for each index along those axes.
        axis: The first of them.

    Raises:
        ValueError: The sizes differ, or the axis is out of range.
    """
    result: Variable = x + _placed(x, y, axis)
    return result


@composite
def scale(x: Array, y: Array, /, axis: int = 1) -> Variable:
    """`x * y`, where the axes of `y` match those of `x` from `axis` on.

    Args:
        ...: As in `bias`.

    Raises:
        ValueError: The sizes differ, or the axis is out of range.
    """
    result: Variable = x * _placed(x, y, axis)
    return result


@composite
def linear_interpolate(p: Array, x: AnyShape, y: AnyShape, /) -> Variable:
    """`p x + (1 - p) y`, elementwise, broadcast together.

    Args:
        p: The share of `x`.
    """
    broadcast_shape(p=p, x=x, y=y)
    result: Variable = y + p * (x - y)
    return result
