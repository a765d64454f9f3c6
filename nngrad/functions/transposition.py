"""Transposes of linear functions of one array."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax

from ..graph.arguments import Shape, as_shape
from ..graph.spec import has_name


def transposed(linear: Callable[[Any], Any], shape: Shape, y: Any, name: str) -> jax.Array:
    """Apply the transpose of `linear`, a linear function of an array of `shape`, to `y`. A ValueError names `y` by
    `name` if it does not have the shape of the result of `linear`."""
    x = jax.ShapeDtypeStruct(tuple(shape) if has_name(shape) else as_shape(shape), y.dtype)
    expected = jax.eval_shape(linear, x).shape
    if y.shape != expected:
        raise ValueError(f"{name} must be of shape {expected}, got {y.shape}")
    result: jax.Array
    (result,) = jax.linear_transpose(linear, x)(y)
    return result


def missing_places(places: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, ...]:
    """The number of zeros that `y` needs at the end of each axis so that XLA does not swap it with the kernel, as it
    does when the kernel has more elements than `y` has positions. 0 for symbolic sizes."""
    if has_name(places) or not 0 < math.prod(places) < math.prod(kernel):
        return (0,) * len(places)
    return tuple([max(k - n, 0) for n, k in zip(places, kernel, strict=True)])
