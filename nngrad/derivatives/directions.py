"""Derivatives along all unit vectors at once, by vectorising the graph for one direction."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import nngrad.functions as F

from ..autodiff.carried import followed_axes
from ..functions.array import zeros_like
from ..graph import Variable, engine, path_between
from ..graph.block import new_leaves
from .vectorize import substituted, vectorize


def independent_rows(y: Variable, x: Variable) -> bool:
    """True if row b of `y`, along its first axis, can be shown to depend on row b of `x` alone."""
    if not y.ndim or not x.ndim or y.shape[0] != x.shape[0]:
        return False
    path, active, _ = path_between([y], [x])
    return x.shape[0] == 1 or id(y) not in active or y is x or followed_axes(path, x, (0,)).get(id(y), (0,)) == (0,)


def over_directions(
    along: Callable[[Variable], Variable], x: Variable, lead: int, chunk: int | None = None, collapse: bool = False
) -> Variable:
    """Returns the results of `along` for each unit vector of `x`, or their sum.

    Args:
        along: Builds the result for one direction, a Variable of the shape and dtype of `x`.
        x: The point.
        lead: Number of leading axes without directions of their own: all rows move in the same one.
        chunk: The number of directions to compute at once; None for all.
        collapse: Return the sum over the directions.

    Returns:
        `(n, *shape)` with n the size of `x` without its leading axes; `shape` with `collapse`.
    """
    return several_over_directions(lambda t: [along(t)], x, lead, chunk, collapse)[0]


def several_over_directions(
    along: Callable[[Variable], list[Variable]], x: Variable, lead: int, chunk: int | None, collapse: bool = False
) -> list[Variable]:
    """The results of a function of several Variables for each unit vector, or their sums, as in `over_directions`; they
    share common subexpressions."""
    count = math.prod(x.shape[lead:])
    if count == 1:
        ys = along(F.constant(val=1, shape=x.shape, dtype=x.dtype))
        return ys if collapse else [F.reshape(y, shape=(1, *y.shape)) for y in ys]
    (t,) = new_leaves([x.spec])
    ys = along(t)
    if count == 0:
        return [zeros_like(y) if collapse else F.constant(val=0, shape=(0, *y.shape), dtype=y.dtype) for y in ys]
    whole = _along_unit_vectors(ys, t, lead, collapse)
    if chunk is None or chunk >= count:
        return whole
    return in_chunks(ys, [(t, lambda first, n: unit_vectors(x, lead, first, n))], count, chunk, whole, collapse)


Vectors = Callable[[int, int], Variable]
"""`vectors(first, count)`: values number `first` to `first + count - 1` of a placeholder, along a first axis."""


def in_chunks(
    ys: Sequence[Variable], values: Sequence[tuple[Variable, Vectors]], count: int, chunk: int, whole: list[Variable],
    collapse: bool,
) -> list[Variable]:
    """`ys` for `count` values of some leaves, `chunk` at a time, each chunk after the one before; or as in `whole`, for
    all values at once, if its program holds fewer bytes: where the directions share what they depend on, as those of a
    sum over pairs of particles, nothing has to be computed for each."""
    parts: list[list[Variable]] = []
    for first in range(0, count, int(chunk)):
        substitutes = {t: vectors(first, min(int(chunk), count - first)) for t, vectors in values}
        if parts:
            before = [F.unlink(y) for y in parts[-1]]
            substitutes = {t: F.optimization_barrier(v, *before) for t, v in substitutes.items()}
        parts.append(vectorize(ys, substitutes, collapse))
    joined = [F.add_n(*part) if collapse else F.concatenate(*part, axis=0) for part in zip(*parts, strict=True)]
    return min(whole, joined, key=engine.peak_bytes)


def _along_unit_vectors(outputs: Sequence[Variable], t: Variable, lead: int, collapse: bool) -> list[Variable]:
    """Returns `outputs` for every unit vector in place of `t`, in the form of `over_directions`."""
    axes = _read_as(outputs, t, lead)
    ones = {y: F.constant(val=1, shape=(1,) * (1 + y.ndim), dtype=t.dtype) for y in axes}
    (y, long_axes), *_ = axes.items()
    sizes = tuple([y.shape[a] for a in long_axes])
    return substituted(outputs, ones, sizes, collapse, axes)


def _read_as(ys: Sequence[Variable], t: Variable, lead: int) -> dict[Variable, tuple[int, ...]]:
    """Returns `t`, or the reshaped views of `t` through which alone it is read, whose axes tell more about dependences.
    For each it names the axes, from `lead` on, along which the directions differ; their sizes are equal."""
    path, _, _ = path_between(ys, [t], of_values=True)
    views = {t: _longer(t, lead)}
    while True:
        (first, directions), *others = views.items()
        readers = [f for f in path if any([x in views for x in f.inputs])]
        if others or not readers or any([y is first for y in ys]):
            return views
        if any([not f.op.view or not f.op.linear_in(0) or len(f.inputs) != 1 or len(f.specs) != 1 for f in readers]):
            return views
        shapes = {f.outputs[0]: _longer(f.outputs[0], lead) for f in readers}
        sizes = {tuple([y.shape[a] for a in axes]) for y, axes in shapes.items()}
        if len(sizes) != 1 or len(sizes.pop()) < len(directions) or not all([_holds(first, y, lead) for y in shapes]):
            return views
        views = shapes


def _longer(y: Variable, lead: int) -> tuple[int, ...]:
    return tuple([a for a in range(lead, y.ndim) if y.shape[a] != 1])


def _holds(t: Variable, y: Variable, lead: int) -> bool:
    """True if `y`, a view of `t`, holds the same vector."""
    same = y.dtype == t.dtype and y.size == t.size and y.shape[:lead] == t.shape[:lead]
    return same and y._need_grad is not False


def unit_vectors(x: Variable, lead: int, first: int, count: int) -> Variable:
    """`count` unit vectors of `x` from number `first` on: `(count, *(1,) * lead, *x.shape[lead:])`."""
    shape = x.shape[lead:]
    size = math.prod(shape)
    vectors = F.matrix_diag(F.constant(val=1, shape=(size,), dtype=x.dtype))
    if count < size:
        vectors = F.take_slices(vectors, key=((first, count, 1), (0, size, 1)))
    result: Variable = F.reshape(vectors, shape=(count, *(1,) * lead, *shape))
    return result
