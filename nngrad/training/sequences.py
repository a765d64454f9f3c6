"""Batches of sequences of different lengths, padded or packed, as in nnabla's `nnabla.utils.rnn`.

    import nngrad.training.sequences as rnn_utils

    packed = rnn_utils.pack_sequence([a, b, c], enforce_sorted=False)

The lengths are read when a function is applied; see `F.pack_padded_sequence`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .. import functions as F
from ..extend import Array, Variable, as_variable


class PackedSequence(NamedTuple):
    """Sequences without padding: all first elements, then all second elements, and so on."""

    data: Variable
    """The elements, (sum of the lengths, ...)."""
    batch_sizes: Variable
    """For each step the number of sequences that reach it."""
    sorted_indices: Variable | None = None
    """For each packed sequence, the index of the given one; None if they were already sorted."""
    unsorted_indices: Variable | None = None
    """For each given sequence, the index of the packed one."""


def pad_sequence(sequences: Sequence[Array], batch_first: bool = False, padding_value: float = 0.0) -> Variable:
    """Sequences of different lengths as one array, the shorter ones padded at their end.

    Args:
        sequences: B Variables, each (its length, ...).
        batch_first: Whether the result is (B, T, ...); else it is (T, B, ...), with T the length of the longest.
        padding_value: The value of the padding.

    Raises:
        ValueError: There are no sequences, or they differ in more than their lengths.
    """
    padded = F.pad_sequence(sequences, padding=padding_value)
    return padded if batch_first else F.transpose(padded, (1, 0, *range(2, padded.ndim)))


def pack_padded_sequence(
    padded_sequence: Array, lengths: Array, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack a padded batch: remove its padding.

    Args:
        padded_sequence: (T, B, ...).
        lengths: (B,), integers from 1 to T.
        batch_first: Whether `padded_sequence` is (B, T, ...).
        enforce_sorted: Whether sequences must be sorted, the longest first; if False, they are sorted here.

    Raises:
        ValueError: A shape does not fit, or the lengths are out of range or not sorted.
    """
    x = as_variable(padded_sequence, "padded_sequence", "pack_padded_sequence")
    lengths = as_variable(lengths, "lengths", "pack_padded_sequence")
    if enforce_sorted:
        return PackedSequence(*F.pack_padded_sequence(x, lengths, batch_first=batch_first))
    known = lengths.d
    order = np.argsort(-known, kind="stable").astype(np.int32)
    x = F.gather(x, order, axis=0 if batch_first else 1)
    data, sizes = F.pack_padded_sequence(x, known[order], batch_first=batch_first)
    return PackedSequence(data, sizes, as_variable(order), as_variable(np.argsort(order).astype(np.int32)))


def pack_sequence(sequences: Sequence[Array], batch_first: bool = False, enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences of different lengths.

    Args:
        sequences: Variables, each (its length, ...).
        batch_first: Has no effect: packed sequences have no batch axis.
        enforce_sorted: Whether sequences must be sorted, the longest first; if False, they are sorted here.

    Raises:
        ValueError: The sequences differ in more than their lengths, or are not sorted.
    """
    del batch_first
    lengths = np.asarray([s.shape[0] for s in sequences], np.int32)
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Variable, Variable]:
    """Unpack sequences to a padded batch, in their original order, and their lengths.

    Args:
        sequence: The packed sequences.
        batch_first: Whether the result is (B, T, ...); else it is (T, B, ...).
        padding_value: The value of the padding.
        total_length: T; None for the length of the longest.

    Raises:
        ValueError: `total_length` is too small.
    """
    x, lengths = F.pad_packed_sequence(
        sequence.data, sequence.batch_sizes, batch_first=batch_first, padding_value=padding_value,
        total_length=total_length,
    )
    back = sequence.unsorted_indices
    if back is None:
        return x, lengths
    return F.gather(x, back, axis=0 if batch_first else 1), F.gather(lengths, back)
