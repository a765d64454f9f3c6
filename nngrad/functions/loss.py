"""Classification and regression losses."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..graph import Array, AsFloats, Variable, composite, op
from ..graph.arguments import DTypeName, NotNegativeScalar, PositiveScalar
from ..graph.spec import FLOAT32
from . import array, elementwise, movement, reduction
from .activation import relu
from .arithmetic import check_same_shape, floating, floating_pair, is_floating, maximum2, minimum2, widened
from .axes import axis_of, mixes
from .moments import accurate

# ---------------------------------------------------------------- classes


def checked_axis(x: Any, target: Any, axis: int | None) -> int:
    """The class axis; a ValueError if the shapes of `x` and `target` do not fit."""
    axis = axis_of(-1 if axis is None else axis, x.ndim)
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    if target.shape != shape:
        raise ValueError(f"target must be of shape {shape}, that of x with size 1 at axis {axis}, got {target.shape}")
    if not x.shape[axis]:
        raise ValueError(f"x must have at least one class along axis {axis}, got shape {x.shape}")
    return axis


def hits(target: Any, classes: int, axis: int) -> tuple[Any, Any, Any]:
    """Masks along `axis`: the label's class, negative labels, and labels that fit no class."""
    if target.dtype == bool or (not is_floating(target) and target.dtype.itemsize < 4):
        target = lax.convert_element_type(target, jnp.int32)
    else:
        target = widened(target)
    shape = (*target.shape[:axis], classes, *target.shape[axis + 1 :])
    # Labels are compared in their own dtype, so 2.5, NaN and numbers that are too large equal no class.
    hit = lax.eq(lax.broadcasted_iota(target.dtype, shape, axis), jnp.broadcast_to(target, shape))
    negative = lax.lt(target, lax.full_like(target, 0))
    is_class = lax.expand_dims(lax.reduce_or(hit, (axis,)), (axis,))
    return hit, negative, lax.bitwise_not(lax.bitwise_or(negative, is_class))


@op(axes=mixes("axis"))
def class_mask(target: Array, /, classes: int, axis: int, dtype: DTypeName = FLOAT32) -> jax.Array:
    """One-hot labels along `axis`: 1 for the class that is the label, else 0.

    Args:
        target: Labels, with size 1 at `axis`: whole numbers of any dtype. A negative one gives zeros; one that is not a
            class gives NaN.
        classes: Number of classes: the size of the result at `axis`.
        axis: The axis of the classes.

    Raises:
        ValueError: `axis` is out of range, `target` does not have size 1 there, or `classes` is negative.
    """
    axis = axis_of(axis, target.ndim)
    if target.shape[axis] != 1 or classes < 0:
        raise ValueError(f"target must have size 1 at axis {axis} and classes >= 0, got {target.shape} and {classes}")
    hit, _, stray = hits(target, classes, axis)
    mask = lax.convert_element_type(hit, dtype)
    return lax.select(jnp.broadcast_to(stray, mask.shape), lax.full_like(mask, jnp.nan), mask)


@op(axes=mixes("axis", none=-1), precision="high")
def softmax_cross_entropy(x: Array, target: Array, /, axis: int | None = None) -> jax.Array:
    """`-log(softmax(x))` of the class that is the label in `target`, along `axis`.

    Args:
        x: Scores; any shape, floating. Any axis but `axis` is a batch axis, of any size.
        target: Labels, of the shape of `x` with size 1 at `axis`: whole numbers of any dtype. A negative label gives 0
            and no gradient (if the scores are finite); one that is not a class gives NaN.
        axis: The axis of the classes; None stands for the last.

    Returns:
        The loss of each sample, of the shape of `target` and the dtype of `x`.

    Raises:
        ValueError: The shapes do not fit, `axis` is out of range, or there are no classes.
    """
    axis = checked_axis(x, target, axis)
    x = floating(x)
    wide = widened(x)
    hit, negative, stray = hits(target, x.shape[axis], axis)
    top = lax.stop_gradient(lax.expand_dims(lax.reduce_max(wide, (axis,)), (axis,)))
    top = lax.select(lax.is_finite(top), top, lax.full_like(top, 0))
    total = lax.reduce_sum(lax.exp(lax.sub(wide, jnp.broadcast_to(top, wide.shape))), (axis,))
    named = lax.reduce_sum(lax.select(hit, wide, lax.full_like(wide, 0)), (axis,))
    y = lax.sub(lax.add(lax.log(lax.expand_dims(total, (axis,))), top), lax.expand_dims(named, (axis,)))
    return lax.convert_element_type(labelled(y, negative, stray), x.dtype)


def labelled(y: Any, negative: Any, stray: Any) -> jax.Array:
    """The loss `y` where the label is a class, 0 where it is negative, and NaN where it is out of range."""
    y = lax.select(negative, lax.full_like(y, 0), y)
    return lax.select(stray, lax.full_like(y, jnp.nan), y)


@op(axes=mixes("axis", none=-1), precision="high")
def categorical_cross_entropy(x: Array, target: Array, /, axis: int | None = None) -> jax.Array:
    """`-log(x)` of the class that is the label in `target`, along `axis`.

    A probability below the smallest normal number of its dtype counts as that number, in the gradient `-1 / x` too.

    Args:
        x: Probabilities; any shape, floating.
        ...: As in `softmax_cross_entropy`.

    Returns:
        The loss of each sample, of the shape of `target` and the dtype of `x`.
    """
    axis = checked_axis(x, target, axis)
    x = floating(x)
    hit, negative, stray = hits(target, x.shape[axis], axis)
    named = lax.reduce_sum(lax.select(hit, x, lax.full_like(x, 0)), (axis,))
    named = lax.max(named, lax.full_like(named, jnp.finfo(x.dtype).tiny))
    return labelled(lax.neg(lax.expand_dims(lax.log(named), (axis,))), negative, stray)


# ---------------------------------------------------------------- probabilities


@op(elementwise=True, diagonal=True, broadcasts=True, precision="high")
def sigmoid_cross_entropy(x: Array, target: Array, /) -> jax.Array:
    """`-target log(s) - (1 - target) log(1 - s)` with `s = sigmoid(x)`, elementwise, broadcast together.

    Computed as `max(x, 0) - x target + log(1 + exp(-|x|))`, which neither overflows nor cancels.

    Args:
        x: Scores; any shape.
        target: Probabilities, usually 0 or 1; they have a gradient, `-x`, where they are floating.
    """
    x, target = floating_pair(x, target)
    return lax.add(lax.sub(lax.max(x, lax.full_like(x, 0)), lax.mul(x, target)), lax.log1p(lax.exp(-lax.abs(x))))


@op(elementwise=True, diagonal=True, broadcasts=True, precision="high")
def binary_cross_entropy(x: Array, target: Array, /) -> jax.Array:
    """`-target log(x) - (1 - target) log(1 - x)`, elementwise, broadcast together.

    A probability that is 0 or 1 counts as the smallest normal number of its dtype away from it, so that
    the loss and its gradient `(1 - target) / (1 - x) - target / x` stay finite; one outside [0, 1] gives NaN.

    Args:
        x: Probabilities; any shape.
        target: Probabilities, usually 0 or 1; they have a gradient, `log(1 - x) - log(x)`, where they are floating.
    """
    x, target = floating_pair(x, target)
    least = lax.full_like(x, math.log(jnp.finfo(x.dtype).tiny))
    ones = lax.full_like(x, 1)
    first = lax.mul(target, lax.max(lax.log(x), least))
    return -lax.add(first, lax.mul(lax.sub(ones, target), lax.max(lax.log1p(-x), least)))


# ---------------------------------------------------------------- differences


@op(elementwise=True, diagonal=True, broadcasts=True, precision="high")
def squared_error(x0: AsFloats, x1: Array, /) -> jax.Array:
    """`(x0 - x1)^2`, elementwise, broadcast together.

    Args:
        x1: Likewise.
    """
    return lax.integer_pow(lax.sub(*floating_pair(x0, x1)), 2)


@op(elementwise=True, diagonal=True, broadcasts=True, precision="high")
def absolute_error(x0: AsFloats, x1: Array, /) -> jax.Array:
    """`|x0 - x1|`, elementwise, broadcast together. Where they are equal, the derivative in `x0` is 1.

    Args:
        x1: Likewise; its derivative is that of `x0` times -1.
    """
    return lax.abs(lax.sub(*floating_pair(x0, x1)))


def _huber_loss(x0: Variable, x1: Variable, delta: Variable) -> Variable:
    d = x0 - x1
    near = minimum2(maximum2(d, -delta), delta)
    return near * (2 * d - near)


@op(diagonal=True, broadcasts=True, precision="high", of_variables=_huber_loss)
def huber_loss(x0: AsFloats, x1: Array, /, delta: PositiveScalar = 1.0) -> jax.Array:
    """With `d = x0 - x1`: `d^2` where `|d| < delta`, else `delta (2 |d| - delta)`: twice Huber's loss (1964).

    Elementwise, broadcast together. The derivative in `x0` is `2 d`, limited to -2 delta and 2 delta; the second one is
    1 where `|d| = delta`.

    Args:
        x1: Likewise.
        delta: The difference at which the square turns into a line; positive.
    """
    size = lax.abs(lax.sub(*floating_pair(x0, x1)))
    near = lax.min(size, lax.full_like(size, delta))
    # One product for both cases: near = |d| gives d^2, near = delta the line.
    return lax.mul(near, lax.sub(lax.mul(size, lax.full_like(size, 2)), near))


@op(
    diagonal=True, broadcasts=True, precision="high",
    of_variables=lambda x0, x1, epsilon: relu(elementwise.abs(x0 - x1) - epsilon),
)  # fmt: skip
def epsilon_insensitive_loss(x0: AsFloats, x1: Array, /, epsilon: NotNegativeScalar) -> jax.Array:
    """`max(|x0 - x1| - epsilon, 0)`, elementwise, broadcast together. At `|x0 - x1| = epsilon` the derivative is 0.

    Args:
        x1: Likewise.
        epsilon: The difference up to which there is no loss; not negative.
    """
    size = lax.abs(lax.sub(*floating_pair(x0, x1)))
    return lax.max(lax.sub(size, lax.full_like(size, epsilon)), lax.full_like(size, 0))


# ---------------------------------------------------------------- distributions


@composite
def kl_multinomial(p: Array, q: Array, /, base_axis: int = 1) -> Variable:
    """Kullback-Leibler divergence of multinomial distributions, `sum p (log(p + 1e-8) - log(q + 1e-8))`.

    Args:
        p: Probabilities.
        q: Probabilities, of the same shape.
        base_axis: The first axis that is summed over.

    Returns:
        The divergences: the shape of `p` before `base_axis`, and an axis of size 1.
    """
    check_same_shape(p=p, q=q)
    base = axis_of(base_axis, p.ndim, "base_axis")
    dtype = p.dtype if p.spec.differentiable else FLOAT32
    p, q = accurate(p), accurate(q)  # 16 bits would lose 1e-8
    terms = p * (elementwise.log(p + 1e-8) - elementwise.log(q + 1e-8))
    y = movement.reshape(reduction.sum(terms, axis=tuple(range(base, p.ndim))), shape=(*p.shape[:base], 1))
    return array.in_dtype(y, dtype)
