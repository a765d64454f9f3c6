"""How the condition of `where` aligns with its values."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp

from ..graph import Variable
from . import movement


def condition_axes(condition: tuple[int, ...], *values: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of the result of `where` with which a condition's axes are aligned, counted from the last one. They
    depend on the shapes of the values too, so the same condition may be aligned otherwise with other values."""
    shape, ndim = common_shape(values, "x_true and x_false"), len(condition)
    start = len(shape) if condition == shape[:ndim] else ndim
    return tuple(range(-start, ndim - start))


def condition_at(condition: Variable, axes: tuple[int, ...], *values: tuple[int, ...]) -> Variable:
    """A condition, reshaped so that `where` aligns it with these axes of the result, counted from the last, when it
    selects from values of such shapes."""
    if condition_axes(condition.shape, *values) == axes:
        return condition
    sizes, ndim = dict(zip(axes, condition.shape, strict=True)), max(-axes[0], *map(len, values))
    y: Variable = movement.reshape(condition, shape=tuple([sizes.get(a, 1) for a in range(-ndim, 0)]))
    return y


def common_shape(shapes: Sequence[tuple[int, ...]], names: str) -> tuple[int, ...]:
    """The common shape to which `shapes` broadcast; a ValueError with `names` if there is none."""
    try:
        shape: tuple[int, ...] = jnp.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(f"{names} of shapes {' and '.join(map(str, shapes))} do not broadcast") from None
    return shape
