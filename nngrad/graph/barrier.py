"""Barriers that XLA's compiler for CPUs cannot look through: what ops run there in place of their forwards
(`Facts.on_cpu`), and passes put in."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata


def known_after(value: jax.Array, *tokens: jax.Array) -> jax.Array:
    """`value` unchanged, to the bit, computed after all `tokens`.

    It is `value` less a zero that is made of one element of each of the tokens, whatever that holds (NaN included), in
    a way that XLA does not see through. So XLA can neither begin earlier with what is computed from it, nor take that
    for the same as what is computed from `value` itself. JAX's own `lax.optimization_barrier` does not last: XLA drops
    it on a CPU before it merges equal computations.
    """
    counts = [_count(token) for token in tokens if token.size]
    if not counts:
        return value
    # A count of bits is 64 at most, and so is 0 after a shift by 7; XLA keeps no account of such bounds.
    count = functools.reduce(lax.bitwise_or, counts)
    nothing = lax.shift_right_logical(count, lax.full_like(count, 7))
    if value.dtype == jnp.bool_:
        return lax.bitwise_or(value, lax.broadcast(lax.convert_element_type(nothing, jnp.bool_), value.shape))
    # x - 0 is x for -0 too, which x + 0 is not.
    return lax.sub(value, lax.broadcast(lax.convert_element_type(nothing, value.dtype), value.shape))


def computed_once(function: Callable[..., jax.Array], *x: jax.Array) -> jax.Array:
    """`function(*x)`, in memory of its own before anything is made of it.

    XLA on a CPU fuses what is elementwise into what reads it, and computes it anew for each place where that looks. It
    fuses nothing with a call that it may not inline, and such a call takes no longer than a loop.
    """
    with set_xla_metadata(inlineable="false"):
        y: jax.Array = jax.jit(function, inline=False)(*x)
    return y


def _count(token: jax.Array) -> jax.Array:
    """Number of bits that are set in the first element of `token`, as uint32[]."""
    first = lax.reshape(lax.slice(token, (0,) * token.ndim, (1,) * token.ndim), ())
    if first.dtype == jnp.bool_:
        return lax.convert_element_type(first, jnp.uint32)
    bits = lax.bitcast_convert_type(first, jnp.dtype(f"uint{8 * first.dtype.itemsize}"))
    return lax.convert_element_type(lax.population_count(bits), jnp.uint32)
