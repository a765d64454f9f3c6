"""Packed sequences: batches of sequences of different lengths, stored without padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..graph import Array, Variable, as_variable, composite
from ..graph.leaf import refuse_too_many
from . import indexing, slicing


@composite
def pack_padded_sequence(
    padded_sequence: Array, lengths: Array, /, batch_first: bool = False
) -> tuple[Variable, Variable]:
    """The sequences of a batch without padding: all first steps, then all second ones, and so on.

    The size of the result depends on the lengths, so they are read when the function is applied; a batch with other
    lengths needs another graph.

    Args:
        padded_sequence: (T, B, ...): steps first, then sequences.
        lengths: (B,), whole numbers from 1 to T, the longest first.
        batch_first: Whether sequences come first: (B, T, ...).

    Returns:
        The elements, (sum of the lengths, ...), and for each step the number of sequences that have it, int32.

    Raises:
        ValueError: A shape does not fit, or the lengths are out of range or not sorted.
    """
    if padded_sequence.ndim < 2:
        raise ValueError(f"padded_sequence must have axes for steps and sequences, got shape {padded_sequence.shape}")
    batch, steps = padded_sequence.shape[:2] if batch_first else padded_sequence.shape[1::-1]
    known = _checked_lengths(lengths, "lengths", steps)
    if len(known) != batch:
        raise ValueError(f"lengths must have one entry for each of the {batch} sequences, got {len(known)}")
    sizes = _counts(known)
    entries = [(b, t) if batch_first else (t, b) for t, n in enumerate(sizes) for b in range(n)]
    points = as_variable(np.asarray(entries, np.int32).reshape(-1, 2))
    return slicing.take_points(padded_sequence, points, axes=(0, 1)), as_variable(np.asarray(sizes, np.int32))


@composite
def pad_packed_sequence(
    packed_sequence: Array, batch_sizes: Array, /, batch_first: bool = False, padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Variable, Variable]:
    """The inverse of `pack_padded_sequence`: shorter sequences are padded at their end to one length.

    Args:
        packed_sequence: (sum of the lengths, ...).
        batch_sizes: For each step the number of sequences that have it, (steps,); read when the function is applied.
        batch_first: Whether the result is (B, T, ...); else it is (T, B, ...).
        padding_value: The number to pad with.
        total_length: T; None for the length of the longest.

    Returns:
        The sequences, and their lengths, (B,), int32.

    Raises:
        ValueError: The sizes are not those of packed sequences, or `total_length` is too small.
    """
    if packed_sequence.ndim < 1:
        raise ValueError("packed_sequence must have at least one axis, got a scalar")
    count = packed_sequence.shape[0]
    sizes = _checked_lengths(batch_sizes, "batch_sizes", count)
    if sum(sizes) != count:
        raise ValueError(f"batch_sizes must add up to the {count} elements of packed_sequence, got {sum(sizes)}")
    steps = len(sizes) if total_length is None else total_length
    if steps < len(sizes):
        raise ValueError(f"total_length must be at least {len(sizes)}, the longest length, got {total_length}")
    longest = sizes[0] if sizes else 0
    refuse_too_many(steps * longest, total_length=total_length)
    places = np.full((steps, longest, 1), count, np.int32)
    first = 0
    for t, n in enumerate(sizes):
        places[t, :n, 0] = np.arange(first, first + n)
        first += n
    if batch_first:
        places = places.swapaxes(0, 1)
    y = slicing.take_points(packed_sequence, as_variable(places), axes=(0,))
    if padding_value:
        y = indexing.where(as_variable(places[..., 0] < count), y, padding_value)
    return y, as_variable(np.asarray(_counts(sizes), np.int32))


def _checked_lengths(lengths: Variable, argument: str, most: int) -> list[int]:
    """The values of lengths or sizes, checked not to increase."""
    if lengths.ndim != 1 or lengths.dtype.kind not in "iuf":
        raise ValueError(f"{argument} must be whole numbers of shape (n,), got {lengths.spec}")
    values = lengths.d.tolist()
    if any([v != int(v) or not 1 <= v <= most for v in values]):
        raise ValueError(f"{argument} must be whole numbers from 1 to {most} when the function is called, got {values}")
    if values != sorted(values, reverse=True):
        raise ValueError(f"{argument} must be sorted in descending order, got {values}")
    return [int(v) for v in values]


def _counts(values: Sequence[int]) -> list[int]:
    """The number of `values` above 0, above 1, and so on: it converts lengths to batch sizes, and back."""
    return [sum([v > i for v in values]) for i in range(max(values, default=0))]
