"""Backward rules of selecting and placing elements."""

import nngrad.functions as F
from nngrad.functions.array import zeros_like
from nngrad.functions.indexing import along

from . import backward, non_differentiable

# ---------------------------------------------------------------- masks


@backward(F.where)
def where_backward(f, gy):
    """dy/dx_true = 1 where the condition holds, dy/dx_false = 1 where it does not. Selected, not multiplied
    by a mask, so that an infinite gradient on the side that was not taken leaves no NaN."""
    condition = f.inputs[0]
    zeros = zeros_like(gy)
    return None, F.where(condition, gy, zeros), F.where(condition, zeros, gy)


# ---------------------------------------------------------------- points

non_differentiable(F.grid_points, F.latest_points)

# ---------------------------------------------------------------- sorting


@backward(F.sort_values)
def sort_values_backward(f, gy):
    """The gradient put back where each element came from"""
    (x,) = f.inputs
    axis = f.args["axis"] % x.ndim
    points, axes = along(F.argsort(x, axis=axis, reverse=f.args["reverse"]), axis)
    return F.put_points(gy, points, axes=axes, shape=x.shape)


non_differentiable(F.argsort)
