"""Backward rules of selecting and placing elements."""

import math
from collections.abc import Sequence

import nngrad.functions as F
from nngrad.functions.array import zeros_like
from nngrad.functions.conditions import condition_at, condition_axes
from nngrad.functions.indexing import along
from nngrad.functions.operands import Operand
from nngrad.graph import Function, Variable

from .batching import batched
from .rules import backward, non_differentiable

# ---------------------------------------------------------------- masks


@backward(F.where)
def where_backward(f: Function, gy: Variable) -> tuple[None, Variable, Variable]:
    """dy/dx_true = 1 where the condition holds, dy/dx_false = 1 where it does not. It selects instead of multiplying by
    a mask, so that an infinite gradient on the side not taken leaves no NaN."""
    condition = condition_at(f.inputs[0], condition_axes(*[x.shape for x in f.inputs]), gy.shape)
    zeros = zeros_like(gy)
    return None, F.where(condition, gy, zeros), F.where(condition, zeros, gy)


@batched(F.where)
def where_batched(f: Function, operands: Sequence[Operand]) -> Variable:
    """The op itself, with the condition reshaped to keep its axes, with the batch axis if it has one"""
    condition, *values = operands
    ndim = f.specs[0].ndim
    lined_up = [value.lined_up(ndim) for value in values]
    axes = condition_axes(*[x.shape for x in f.inputs])
    lead = (-1 - ndim,) * condition.lead
    return F.where(condition_at(condition.value, (*lead, *axes), *[x.shape for x in lined_up]), *lined_up)


# ---------------------------------------------------------------- points

non_differentiable(F.latest_points)


@backward(F.extreme_points)
def extreme_points_backward(f: Function, gy: Variable) -> tuple[Variable, Variable, None]:
    """dy/dx = 1/m where x equals y, and dy/du = 1/m where a slice u equals the y at its point, if m values are tied in
    all; 0 elsewhere. It selects instead of multiplying, so that an infinite gradient leaves no NaN on the others."""
    x, u, points = f.inputs
    axes = f.args["axes"]
    (y,) = f.outputs
    attained = F.equal(x, y)
    put = F.equal(u, F.take_points(y, points, axes=axes, at=0, outside=math.nan))
    many = F.put_points(F.cast(put, dtype=x.dtype), points, axes=axes, shape=x.shape, at=0)
    share = gy / (F.cast(attained, dtype=x.dtype) + many)
    taken = F.take_points(share, points, axes=axes, at=0)
    return F.where(attained, share, zeros_like(x)), F.where(put, taken, zeros_like(u)), None

# ---------------------------------------------------------------- sorting


@backward(F.sort_values)
def sort_values_backward(f: Function, gy: Variable) -> Variable:
    """The gradient moved back to where each element came from"""
    (x,) = f.inputs
    axis = f.args["axis"] % x.ndim
    points, rows = along(F.argsort(x, axis=axis, reverse=f.args["reverse"]), axis)
    return F.put_points(gy, points, axes=(axis,), shape=x.shape, rows=rows)


non_differentiable(F.argsort)
