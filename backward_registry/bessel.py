"""Backward rules of Bessel functions."""

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .rules import backward


@backward(F.i0e)
def i0e_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = i1e(x) - sign(x) y"""
    (x,), (y,) = f.inputs, f.outputs
    return gy * (F.i1e(x) - F.signum(x) * y)


@backward(F.i1e)
def i1e_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = i0e(x) - i1e(x) / x - sign(x) y"""
    (x,), (y,) = f.inputs, f.outputs
    return gy * (F.i0e(x) - F.scaled_bessel_ratio(x, order=1) - F.signum(x) * y)


@backward(F.scaled_bessel_ratio)
def scaled_bessel_ratio_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = x times the one of the next order - sign(x) y"""
    (x,), (y,) = f.inputs, f.outputs
    return gy * (x * F.scaled_bessel_ratio(x, order=f.args["order"] + 1) - F.signum(x) * y)
