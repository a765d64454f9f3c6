"""Replacements for code that XLA compiles badly: barriers that its compiler for CPUs cannot look through, which ops run
there in place of their forwards (`Facts.on_cpu`) and passes insert; and loops that stack the results of each step, in
one stretch or in segments."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata

from .thresholds import SLOW_BELOW


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

# ---------------------------------------------------------------- loops that stack


Step = Callable[[Any, Any], tuple[Any, Any]]
"""From a carry and slices to the next carry and a tuple of results to stack."""


def scan_in_segments(
    step: Step, first: Any, scanned: tuple[Any, ...], length: int, reverse: bool = False, unroll: int = 1
) -> Any:
    """`lax.scan`, which returns the last carry and the stacks; in segments where that is much faster."""
    size = _steps_at_once(step, first, scanned) if SLOW_BELOW else 1
    if not 1 < size < length:
        return lax.scan(step, first, scanned, length=length, reverse=reverse, unroll=max(1, min(unroll, length)))

    def stretch(carry: Any, slices: tuple[Any, ...], length: int) -> tuple[Any, Any]:
        return lax.scan(step, carry, slices, length=length, reverse=reverse, unroll=max(1, min(unroll, length)))

    return in_segments(stretch, first, scanned, length, size, reverse)


def _steps_at_once(step: Step, first: Any, scanned: tuple[Any, ...]) -> int:
    """How many steps give enough bytes to be written at once."""
    slices = tuple([jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in scanned])
    rows = [row.size * row.dtype.itemsize for row in jax.tree.leaves(jax.eval_shape(step, first, slices)[1])]
    return max([math.ceil(SLOW_BELOW / size) for size in rows if size], default=1)


def in_segments(
    stretch: Callable[[Any, tuple[Any, ...], int], tuple[Any, Any]], first: Any, scanned: tuple[Any, ...], length: int,
    size: int, reverse: bool,
) -> tuple[Any, Any]:  # fmt: skip
    """Scan over segments of `size` steps, then over the remaining steps.

    Args:
        stretch: Runs a number of steps: takes a carry, slices and the number, and returns the last carry and stacks
            with a row per step.
        first: The first carry.
        scanned: Arrays to slice along their first axes.
        length: The number of steps, at least `size`.
        size: The number of steps in a segment.
        reverse: Whether the steps go from the last slice to the first.

    Returns:
        The last carry, and the stacks.
    """
    count, rest = divmod(length, size)
    whole, after = (slice(rest, None), slice(rest)) if reverse else (slice(length - rest), slice(length - rest, None))
    cut = tuple([lax.reshape(x[whole] if rest else x, (count, size, *x.shape[1:])) for x in scanned])
    last, stacks = lax.scan(lambda carry, xs: stretch(carry, xs, size), first, cut, length=count, reverse=reverse)
    stacks = jax.tree.map(lambda y: lax.reshape(y, (y.shape[0] * y.shape[1], *y.shape[2:])), stacks)
    if rest:
        last, more = stretch(last, tuple([x[after] for x in scanned]), rest)
        stacks = jax.tree.map(lambda y, z: lax.concatenate((z, y) if reverse else (y, z), 0), stacks, more)
    return last, stacks
