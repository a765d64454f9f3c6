"""Estimates in place of the derivatives of quantisers, which are 0 wherever there are any."""

import math

import nngrad.functions as F
from nngrad.functions.quantization import fixed_point_range, pow2_range
from nngrad.graph import Function, Variable

from .rules import backward


@backward(F.straight_through, exact=False)
def straight_through_backward(f: Function, gy: Variable) -> tuple[None, Variable]:
    """dy/dy = 0, dy/dx = 1"""
    return None, gy


@backward(F.binary_sigmoid, exact=False)
def binary_sigmoid_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1/2 where |x| < 1, else 0: the derivative of (x + 1) / 2, cut off at 0 and 1"""
    (x,) = f.inputs
    return gy * (0.5 * F.less_scalar(F.abs(x), val=1.0))


@backward(F.binary_tanh, exact=False)
def binary_tanh_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1 where |x| < 1, else 0: the derivative of x, cut off at -1 and 1"""
    (x,) = f.inputs
    return gy * F.less_scalar(F.abs(x), val=1.0)


@backward(F.fixed_point_quantize, exact=False)
def fixed_point_quantize_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1 within the range, else 0"""
    (x,) = f.inputs
    if not (f.args["quantize"] and f.args["ste_fine_grained"]):
        return gy
    low, high = fixed_point_range(f.args["sign"], f.args["n"], f.args["delta"])
    return gy * (F.greater_equal_scalar(x, val=low) * F.less_equal_scalar(x, val=high))


@backward(F.pow2_quantize, exact=False)
def pow2_quantize_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1 where |x| is not rounded to more than the largest power, else 0"""
    (x,) = f.inputs
    if not (f.args["quantize"] and f.args["ste_fine_grained"]):
        return gy
    _, high = pow2_range(f.args["sign"], f.args["with_zero"], f.args["n"], f.args["m"])
    passing = F.less_scalar(F.abs(x), val=high * math.sqrt(2))
    return gy * (passing if f.args["sign"] else passing * F.greater_equal_scalar(x, val=0.0))


@backward(F.prune, exact=False)
def prune_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1"""
    return gy


@backward(F.quantize_linear, exact=False)
def quantize_linear_backward(f: Function, gy: Variable) -> tuple[Variable, Variable, Variable]:
    """dy/dx = 1 / scale, dy/dscale = -x / scale^2, dy/dzero_point = 1"""
    x, scale, _ = f.inputs
    return gy / scale, -gy * x * scale**-2, gy
