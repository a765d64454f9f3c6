"""How the condition of `where` aligns with its values."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp

from ..graph import Variable
from . import movement


def condition_axes(condition: tuple[int, ...], *values: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of the result of `where` that a condition's axes are aligned with, counted from the last one. They
    depend on the shapes of the condition and of the values: for other shapes the same condition may differ."""
    shape, ndim = common_shape(values, "x_true and x_false"), len(condition)
    start = len(shape) if condition == shape[:ndim] else ndim
    return tuple(range(-start, ndim - start))


def condition_at(condition: Variable, axes: tuple[int, ...], *values: tuple[int, ...]) -> Variable:
    """A condition in a shape in which `where` takes its axes for these ones of the result, counted from the last, if it
    selects from values of such shapes."""
    if condition_axes(condition.shape, *values) == axes:
        return condition
    sizes, ndim = dict(zip(axes, condition.shape, strict=True)), max(-axes[0], *map(len, values))
    y: Variable = movement.reshape(condition, shape=tuple([sizes.get(a, 1) for a in range(-ndim, 0)]))
    return y


def common_shape(shapes: Sequence[tuple[int, ...]], names: str) -> tuple[int, ...]:
    """The shape that these broadcast to; a ValueError names them by `names` if there is none."""
    try:
        shape: tuple[int, ...] = jnp.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(f"{names} of shapes {' and '.join(map(str, shapes))} do not broadcast") from None
    return shape
