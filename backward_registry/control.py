"""Backward rules of functions that steer gradients and effects."""

import nngrad.functions as F

from . import backward


@backward(F.update)
def update_backward(f, *gys):
    """dy_i/dx_i = 1"""
    return gys
