"""Transposes of linear functions of one array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from ..graph.arguments import Shape, as_shape


def transposed(linear: Callable[[Any], Any], shape: Shape, y: Any, name: str) -> jax.Array:
    """Returns what the transpose of `linear`, a linear function of an array of `shape`, makes of `y`.

    Raises:
        ValueError: `y`, which the message calls `name`, has not the shape of what `linear` gives.
    """
    x = jax.ShapeDtypeStruct(as_shape(shape), y.dtype)
    expected = jax.eval_shape(linear, x).shape
    if y.shape != expected:
        raise ValueError(f"{name} of shape {y.shape} must have the shape {expected} of what is transposed")
    result: jax.Array
    (result,) = jax.linear_transpose(linear, x)(y)
    return result
