"""Which axes of a result depend elementwise on which axes of an input: the rows of a batch, for the most part.

An axis of x is *carried* to an axis of y where y at place b of that axis depends on x at place b alone. The rows of a
network's input are carried to the rows of its output, unless something such as batch normalization mixes them. Where
every axis of x that is longer than 1 is carried, each element of y depends on one element of x, and the Jacobian is
diagonal but for axes that y has besides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import nngrad.functions as F

from ..graph import Function, Op, Variable
from ..graph.arguments import axes_of

Axes = tuple[int, ...]
"""For each axis of x that is followed, the axis that it has become."""
Carry = Callable[[Function, list[Axes | None]], Axes | None]
"""Where a function carries the axes of its inputs (None: does not depend on x), or None where it mixes them."""

_carries: dict[Op, Carry] = {}

_FIRST_ONLY: frozenset[Op] = frozenset({F.after, F.recomputed})
"""Ops whose result is their first input; the others say when, or whose gradient it carries."""


def carried(path: Iterable[Function], x: Variable, axes: Axes) -> dict[int, Axes | None]:
    """Where the functions on all ways from `x`, lowest rank first, carry `axes` of `x`.

    Returns:
        The axes of each Variable there, by its id, or None where some are mixed.
    """
    found: dict[int, Axes | None] = {id(x): axes}
    for f in path:
        if f.op in _FIRST_ONLY:
            if id(f.inputs[0]) in found:
                found.update({id(y): found[id(f.inputs[0])] for y in f.outputs})
            continue
        given = [found.get(id(each)) for each in f.inputs]
        if any([each is None and id(x) in found for each, x in zip(given, f.inputs, strict=True)]):
            result = None
        elif not axes:
            result = axes
        else:
            carry = _aligned if f.op.diagonal else _carries.get(f.op)
            result = None if carry is None else carry(f, given)
        found.update({id(y): result for y in f.outputs})
    return found


def carries(*ops: Op) -> Callable[[Carry], Carry]:
    """Register the decorated function for `ops`."""

    def enter(carry: Carry) -> Carry:
        for each in ops:
            _carries[each] = carry
        return carry

    return enter


def agreed(candidates: Iterable[Axes | None]) -> Axes | None:
    """What all candidates are; None if they differ, or one is None."""
    distinct = set(candidates)
    return distinct.pop() if len(distinct) == 1 else None


def _aligned(f: Function, given: list[Axes | None]) -> Axes | None:
    ndim = len(f.specs[0].shape)
    return agreed([tuple([a + ndim - x.ndim for a in axes]) for x, axes in zip(f.inputs, given, strict=True)
                   if axes is not None])


@carries(F.flip)
def _flip(f: Function, given: list[Axes | None]) -> Axes | None:
    axes = given[0]
    if axes is not None and set(axes) & set(axes_of(f.args["axes"], f.inputs[0].ndim)):
        return None
    return axes


@carries(F.broadcast)
def _broadcast(f: Function, given: list[Axes | None]) -> Axes | None:
    return _aligned(f, given)


@carries(F.reshape)
def _reshape(f: Function, given: list[Axes | None]) -> Axes | None:
    before, after = f.inputs[0].shape, f.specs[0].shape
    # An axis stays what it is if as many elements lie before it and after it as did.
    place = {(math.prod(after[:b]), n): b for b, n in enumerate(after) if n != 1}
    return _all([place.get((math.prod(before[:a]), before[a])) for a in given[0] or ()])


@carries(F.transpose)
def _transpose(f: Function, given: list[Axes | None]) -> Axes | None:
    ndim = f.inputs[0].ndim
    order = f.args["axes"]
    order = tuple(range(ndim))[::-1] if order is None else tuple([a % ndim for a in order])
    return tuple([order.index(a) for a in given[0] or ()])


def _all(axes: list[int | None]) -> Axes | None:
    return None if None in axes else tuple(axes)  # type: ignore[arg-type]


@carries(F.batch_matmul)
def _batch_matmul(f: Function, given: list[Axes | None]) -> Axes | None:
    ndim = len(f.specs[0].shape)
    candidates: list[Axes | None] = []
    for i, (x, axes) in enumerate(zip(f.inputs, given, strict=True)):
        if axes is None:
            continue
        # The axis of this operand that is not summed over: the rows of the first, the columns of the second.
        kept = x.ndim - 2 + (i if not f.arguments[i] else 1 - i)
        alone = given[1 - i] is None
        to = {a: a + ndim - x.ndim for a in range(x.ndim - 2)} | ({kept: ndim - 2 + i} if alone else {})
        candidates.append(_all([to.get(a) for a in axes]))
    return agreed(candidates)


@carries(F.contraction)
def _contraction(f: Function, given: list[Axes | None]) -> Axes | None:
    """An axis is carried where its index stays; two that have become one are not told apart."""
    output = f.args["output"]
    candidates: list[Axes | None] = []
    for term, axes in zip(f.args["terms"], given, strict=True):
        if axes is not None:
            indices = [term[a] for a in axes]
            apart = len(set(indices)) == len(indices)
            candidates.append(_all([output.index(i) if i in output else None for i in indices]) if apart else None)
    return agreed(candidates)


@carries(F.batch_det, F.batch_logdet, F.batch_inv, F.batch_cofactor, F.batch_cholesky, F.half_lower, F.trilu,
         F.matrix_diag_part)
def _of_matrices(f: Function, given: list[Axes | None]) -> Axes | None:
    return _leading(given[0], f.inputs[0].ndim - 2)


@carries(F.max_pooling, F.sum_pooling, F.average_pooling)
def _pooling(f: Function, given: list[Axes | None]) -> Axes | None:
    return _leading(given[0], f.inputs[0].ndim - len(f.args["kernel"]) - 1)


def _leading(axes: Axes | None, count: int) -> Axes | None:
    """`axes` if they are among the first `count`."""
    return None if axes is None or any([a >= count for a in axes]) else axes


@carries(F.sum, F.mean, F.amax, F.amin, F.prod, F.var, F.std, F.norm, F.logsumexp)
def _reduction(f: Function, given: list[Axes | None]) -> Axes | None:
    x = f.inputs[0]
    reduced = axes_of(f.args["axis"], x.ndim)
    axes = given[0] or ()
    if set(axes) & set(reduced):
        return None
    return axes if f.args["keepdims"] else tuple([a - sum([r < a for r in reduced]) for a in axes])


@carries(F.softmax, F.log_softmax, F.cumsum, F.cumprod, F.sort_values)
def _along(f: Function, given: list[Axes | None]) -> Axes | None:
    axis = f.args["axis"]
    if axis is None:
        axis = 0 if f.op in (F.cumsum, F.cumprod) else -1
    return None if axis % f.inputs[0].ndim in (given[0] or ()) else given[0]


@carries(F.concatenate)
def _concatenate(f: Function, given: list[Axes | None]) -> Axes | None:
    axes = agreed([each for each in given if each is not None])
    return None if axes is None or f.args["axis"] % f.inputs[0].ndim in axes else axes


@carries(F.stack)
def _stack(f: Function, given: list[Axes | None]) -> Axes | None:
    axes = agreed([each for each in given if each is not None])
    axis = f.args["axis"] % (f.inputs[0].ndim + 1)
    return None if axes is None else tuple([a + (a >= axis) for a in axes])


@carries(F.split)
def _split(f: Function, given: list[Axes | None]) -> Axes | None:
    axis = f.args["axis"] % f.inputs[0].ndim
    axes = given[0] or ()
    return None if axis in axes else tuple([a - (a > axis) for a in axes])


@carries(F.take_slices, F.put_slices)
def _slices(f: Function, given: list[Axes | None]) -> Axes | None:
    taking = f.op is F.take_slices
    shape = f.inputs[0].shape if taking else f.specs[0].shape
    whole: dict[int, int] = {}
    axis = part = 0  # of the whole array, and of the part of it
    for entry in f.args["key"]:
        if entry is not None:
            if entry == (0, shape[axis], 1):
                whole[axis if taking else part] = part if taking else axis
            axis += 1
        part += not isinstance(entry, int)
    return _all([whole.get(a) for a in given[0] or ()])


@carries(F.pad)
def _pad(f: Function, given: list[Axes | None]) -> Axes | None:
    """An axis without a margin is carried; widths are in pairs, for the last axes."""
    widths, axes = f.args["pad_width"], given[0] or ()
    first = f.inputs[0].ndim - len(widths) // 2
    wider = {first + i // 2 for i, width in enumerate(widths) if width}
    return None if wider & set(axes) else axes


@carries(F.matrix_diag)
def _diagonal(f: Function, given: list[Axes | None]) -> Axes | None:
    return given[0]


@carries(F.take_points)
def _points(f: Function, given: list[Axes | None]) -> Axes | None:
    """The axes that are not indexed stay, with those of the points among them; the points must be fixed."""
    x, indices = f.inputs
    indexed, at = f.args["axes"], f.args["at"]
    if given[1] is not None:
        return None
    kept = [a for a in range(x.ndim) if a not in indexed]
    kept[at:at] = [-1] * (indices.ndim - 1)
    return _all([kept.index(a) if a in kept else None for a in given[0] or ()])


@carries(F.convolve, F.convolve_data_grad)
def _convolution(f: Function, given: list[Axes | None]) -> Axes | None:
    return given[0] if given[0] == (0,) and given[1] is None else None
