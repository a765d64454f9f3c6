"""Diagonals, single items and permuted slices of an array."""

from __future__ import annotations

import numpy as np

from ..graph import Array, Variable, WithAxis, composite
from .axes import axis_of
from .indexing import argsort, gather
from .movement import transpose


@composite
def diagonal(x: Array, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Variable:
    """The diagonal over two axes, elements `[i, i + offset]`, as the last axis of the result.

    Args:
        x: Two axes or more, of any dtype.
        offset: The distance above the main diagonal; below it if negative.
        axis1: The axis of the rows.
        axis2: The axis of the columns.

    Raises:
        ValueError: An axis is out of range, or both are the same.
    """
    row, column = axis_of(axis1, x.ndim, "axis1"), axis_of(axis2, x.ndim, "axis2")
    if row == column:
        raise ValueError(f"axis1 and axis2 must differ, got axis {row} for both")
    others = [i for i in range(x.ndim) if i not in (row, column)]
    first, last = max(-offset, 0), max(offset, 0)
    count = max(min(x.shape[row] - first, x.shape[column] - last), 0)
    steps = np.arange(count)
    result: Variable = transpose(x, axes=(*others, row, column))[..., steps + first, steps + last]
    return result


@composite
def select_item(x: Array, t: Array, /) -> Variable:
    """One item of each row: `y[i] = x[i, t[i]]`.

    Args:
        x: (rows, items).
        t: (rows,), whole numbers; negative ones count from the end, and one out of range gives NaN.
    """
    if x.ndim != 2 or t.shape != x.shape[:1]:
        raise ValueError(f"x must be of shape (rows, n) and t (rows,), got {x.shape} and {t.shape}")
    return gather(x, t, axis=1, batch_dims=1)


@composite
def permutate(x: WithAxis, indices: Array, /, axis: int = 0, inv: bool = False) -> Variable:
    """The slices along an axis, permuted: `y[i] = x[indices[i]]`.

    Args:
        indices: (n,), each of 0, ..., n - 1 once, for `n` slices.
        inv: Whether to undo that order: `y[indices[i]] = x[i]`.

    Raises:
        ValueError: The axis is out of range, or the numbers of indices and slices differ.
    """
    axis = axis_of(axis, x.ndim, "axis")
    if indices.shape != (x.shape[axis],):
        raise ValueError(f"indices must be of shape ({x.shape[axis]},), as x has axis {axis}, got {indices.shape}")
    return gather(x, argsort(indices) if inv else indices, axis=axis)
