"""Derivatives along all unit vectors at once: the graph for one direction, vectorized."""

from __future__ import annotations

import math
from collections.abc import Callable

import nngrad.functions as F

from ..functions.array import zeros_like
from ..graph import NdArray, Variable, path_between
from ..graph.variable import leaf_of
from .sparsity import followed_axes
from .vectorize import vectorize


def independent_rows(y: Variable, x: Variable) -> bool:
    """Whether row b of `y`, along its first axis, can be shown to depend on row b of `x` alone."""
    if not y.ndim or not x.ndim or y.shape[0] != x.shape[0]:
        return False
    path, active, _ = path_between([y], [x])
    return x.shape[0] == 1 or id(y) not in active or y is x or followed_axes(path, x, (0,)).get(id(y), (0,)) == (0,)


def over_directions(
    along: Callable[[Variable], Variable], x: Variable, lead: int, chunk: int | None = None, collapse: bool = False
) -> Variable:
    """Returns what `along` makes of each unit vector of `x`, or the sum of that.

    Args:
        along: Builds what is wanted for one direction, a Variable of the shape and dtype of `x`.
        x: The point.
        lead: Number of leading axes that have no directions of their own: all rows move in the same one.
        chunk: How many directions are computed at once; None for all.
        collapse: Return the sum over the directions.

    Returns:
        `(n, *shape)` with n the size of `x` without its leading axes; `shape` with `collapse`.
    """
    return several_over_directions(lambda t: [along(t)], x, lead, chunk, collapse)[0]


def several_over_directions(
    along: Callable[[Variable], list[Variable]], x: Variable, lead: int, chunk: int | None, collapse: bool = False
) -> list[Variable]:
    """As `over_directions`, where `along` builds several Variables, which share what they have in common."""
    count = math.prod(x.shape[lead:])
    if count == 1:
        ys = along(F.constant(val=1, shape=x.shape, dtype=x.dtype))
        return ys if collapse else [F.reshape(y, shape=(1, *y.shape)) for y in ys]
    t = leaf_of(NdArray.of_spec(x.spec))
    ys = along(t)
    if count == 0:
        return [zeros_like(y) if collapse else F.constant(val=0, shape=(0, *y.shape), dtype=y.dtype) for y in ys]
    step = count if chunk is None else int(chunk)
    parts = [
        vectorize(ys, {t: unit_vectors(x, lead, first, min(step, count - first))}, collapse)
        for first in range(0, count, step)
    ]
    if len(parts) == 1:
        return parts[0]
    return [F.add_n(*part) if collapse else F.concatenate(*part, axis=0) for part in zip(*parts, strict=True)]


def unit_vectors(x: Variable, lead: int, first: int, count: int) -> Variable:
    """`count` unit vectors of `x` from the one with number `first` on: `(count, *(1,) * lead, *x.shape[lead:])`."""
    own = x.shape[lead:]
    size = math.prod(own)
    vectors = F.matrix_diag(F.constant(val=1, shape=(size,), dtype=x.dtype))
    if count < size:
        vectors = F.take_slices(vectors, key=((first, count, 1), (0, size, 1)))
    result: Variable = F.reshape(vectors, shape=(count, *(1,) * lead, *own))
    return result
