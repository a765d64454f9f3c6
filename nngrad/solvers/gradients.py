"""Changes and checks of the gradients that `backward()` has left, as functions of arrays.

`scale` is what the loss was multiplied by: the gradients are that many times as large as they would be.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

Arrays = tuple[Any, ...]


@jax.jit
def decayed(params: Arrays, grads: Arrays, rate: Any, scale: Any) -> Arrays:
    """Each gradient plus `rate` times its parameter."""

    def decay(p: Any, g: Any) -> Any:
        wide = widened(g)
        return (wide + rate * scale.astype(wide.dtype) * p.astype(wide.dtype)).astype(g.dtype)

    return tuple([decay(p, g) for p, g in zip(params, grads, strict=True)])


@jax.jit
def clipped(params: Arrays, grads: Arrays, norm: Any, scale: Any) -> Arrays:
    """Each gradient scaled to an L2 norm of `norm` at most."""

    def clip(g: Any) -> Any:
        length = jnp.sqrt(jnp.sum(jnp.square(widened(g))))
        limit = norm * scale.astype(length.dtype)
        return jnp.where(length > limit, (g * (limit / length)).astype(g.dtype), g)

    return tuple([clip(g) for g in grads])


@jax.jit
def multiplied(params: Arrays, grads: Arrays, factor: Any, scale: Any) -> Arrays:
    """Each gradient times `factor`."""
    return tuple([factor * g for g in grads])


@jax.jit
def not_finite(grads: Arrays) -> tuple[Any, Any]:
    """Whether some gradient is infinite, and whether some gradient is not a number."""
    none = jnp.zeros((), bool)
    return sum([jnp.isinf(g).any() for g in grads], none), sum([jnp.isnan(g).any() for g in grads], none)


def widened(array: Any) -> Any:
    """`array` in its dtype, or in float32 where that has fewer bits."""
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))
