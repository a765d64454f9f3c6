"""Changes and checks of gradients, as functions of arrays.

`scale` is the number that the loss, and hence each gradient, was multiplied by.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..extend import interrupt_safe

Arrays = tuple[Any, ...]


@interrupt_safe
@functools.partial(jax.jit, static_argnums=0)
def changed(
    change: Callable[[Any, Any, Any, Any], Any], params: Arrays, grads: Arrays, number: Any, scale: Any
) -> Arrays:
    """Each gradient after `change(parameter, gradient, number, scale)`."""
    return tuple([change(p, g, number, scale) for p, g in zip(params, grads, strict=True)])


def clipped(p: Any, g: Any, norm: Any, scale: Any) -> Any:
    """`g`, scaled down to an L2 norm of at most `norm`."""
    return within_norm(g, norm_of([g]), norm, scale)


def times(p: Any, g: Any, factor: Any, scale: Any) -> Any:
    """`factor` times `g`."""
    return factor * g


@interrupt_safe
@jax.jit
def has_inf_has_nan(grads: Arrays) -> tuple[Any, Any]:
    """Two bools: True if some gradient has an infinite element, and if some has a NaN."""
    none = jnp.zeros((), bool)
    return sum([jnp.isinf(g).any() for g in grads], none), sum([jnp.isnan(g).any() for g in grads], none)


def with_decay(p: Any, g: Any, rate: Any, scale: Any = 1.0) -> Any:
    """`g` plus `rate` times `p`."""
    wide = widened_array(g)
    return (wide + rate * jnp.asarray(scale, wide.dtype) * p.astype(wide.dtype)).astype(g.dtype)


def within_norm(g: Any, length: Any, norm: Any, scale: Any = 1.0) -> Any:
    """`g` times `norm / length` if that is below 1, else `g`."""
    limit = norm * jnp.asarray(scale, length.dtype)
    return jnp.where(length > limit, (g * (limit / length)).astype(g.dtype), g)


def within_bounds(g: Any, value: Any) -> Any:
    """`g` clipped to the range from `-value` to `value`; NaN stays NaN."""
    return jnp.clip(widened_array(g), -value, value).astype(g.dtype)


def norm_of(arrays: Sequence[Any]) -> Any:
    """The global L2 norm of several arrays, in at least float32."""
    return jnp.sqrt(sum([jnp.sum(jnp.square(widened_array(a))) for a in arrays], jnp.float32(0)))


def widened_array(array: Any) -> Any:
    """`array`, cast to float32 if its dtype has fewer bits."""
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))
