"""Backward rules of the activation functions."""

import nngrad.functions as F

from . import backward


@backward(F.tanh)
def tanh_backward(f, gy):
    """dy/dx = 1 - y^2"""
    (y,) = f.outputs
    return gy * (1 - y * y)
