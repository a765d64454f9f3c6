"""Barriers that XLA's compiler for CPUs cannot look through."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
from jax import lax
from jax import numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata


def known_after(value: jax.Array, *tokens: jax.Array) -> jax.Array:
    """`value` unchanged, bit for bit, but computed after all `tokens`.

    It subtracts a zero made from one element of each token, whatever that holds (NaN included), in a way that XLA
    cannot simplify. So XLA can neither start earlier on computations from the result, nor merge them with computations
    from `value` itself. JAX's own `lax.optimization_barrier` does not last: XLA's CPU backend drops it before it
    eliminates common subexpressions.
    """
    counts = [_count(token) for token in tokens if token.size]
    if not counts:
        return value
    # A count of bits is at most 64, so it is 0 after a shift by 7; XLA does not track such bounds.
    count = functools.reduce(lax.bitwise_or, counts)
    nothing = lax.shift_right_logical(count, lax.full_like(count, 7))
    if value.dtype == jnp.bool_:
        return lax.bitwise_or(value, lax.broadcast(lax.convert_element_type(nothing, jnp.bool_), value.shape))
    # x - 0 preserves -0, which x + 0 does not.
    return lax.sub(value, lax.broadcast(lax.convert_element_type(nothing, value.dtype), value.shape))


def computed_once(function: Callable[..., jax.Array], *x: jax.Array) -> jax.Array:
    """`function(*x)`, materialised in a buffer of its own.

    XLA's CPU backend fuses elementwise operations into their consumers, and recomputes them for each element that a
    consumer reads. It does not fuse across a call that it may not inline, and such a call is as fast as a loop.
    """
    with set_xla_metadata(inlineable="false"):
        y: jax.Array = jax.jit(function, inline=False)(*x)
    return y


def _count(token: jax.Array) -> jax.Array:
    """The number of bits that are set in the first element of `token`, as uint32[]."""
    first = lax.reshape(lax.slice(token, (0,) * token.ndim, (1,) * token.ndim), ())
    if first.dtype == jnp.bool_:
        return lax.convert_element_type(first, jnp.uint32)
    bits = lax.bitcast_convert_type(first, jnp.dtype(f"uint{8 * first.dtype.itemsize}"))
    return lax.convert_element_type(lax.population_count(bits), jnp.uint32)
