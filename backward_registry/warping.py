"""Backward rules of warps: how far in its cell a position lies; the rest is made of weighted sums of points."""

from __future__ import annotations

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .rules import backward, non_differentiable


@backward(F.cell_fraction)
def cell_fraction_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1, -1 in a reflection, 0 where the last pixel is repeated"""
    (x,) = f.inputs
    return gy * F.cell_slope(x, **f.args)


non_differentiable(F.cell_slope, F.cell_indices)
