"""Scans that stack each step's results, in one piece or, where XLA is slow at that, in segments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
from jax import lax

from .thresholds import SLOW_BELOW

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
