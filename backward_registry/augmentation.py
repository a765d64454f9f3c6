"""Backward rules of windows at random places. Taking is linear: the rule puts, and the other way round."""

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .rules import backward, non_differentiable

non_differentiable(F.random_offsets)


@backward(F.take_windows)
def take_windows_backward(f: Function, gy: Variable) -> tuple[Variable, None]:
    """The gradient put where the windows were"""
    x, starts = f.inputs
    return F.put_windows(gy, starts, sizes=x.shape[starts.ndim - 1 :]), None


@backward(F.put_windows)
def put_windows_backward(f: Function, gx: Variable) -> tuple[Variable, None]:
    """The gradient in the windows"""
    y, starts = f.inputs
    return F.take_windows(gx, starts, sizes=y.shape[starts.ndim - 1 :]), None
