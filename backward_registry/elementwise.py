"""Backward rules of elementwise functions of one Variable."""

import nngrad.functions as F

from . import backward


@backward(F.sin)
def sin_backward(f, gy):
    """dy/dx = cos x"""
    (x,) = f.inputs
    return gy * F.cos(x)


@backward(F.cos)
def cos_backward(f, gy):
    """dy/dx = -sin x"""
    (x,) = f.inputs
    return gy * -F.sin(x)


@backward(F.exp)
def exp_backward(f, gy):
    """dy/dx = y"""
    (y,) = f.outputs
    return gy * y


@backward(F.identity)
def identity_backward(f, gy):
    """dy/dx = 1"""
    return gy
