"""Surrogate gradients of quantisers, whose true derivatives are 0 almost everywhere."""

import math

import nngrad.functions as F
from nngrad.functions.quantization import fixed_point_range, pow2_range
from nngrad.graph import Function, Variable

from .rules import backward, gradients, slopes

gradients(F.straight_through, "dy/dy = 0, dy/dx = 1", lambda gy: (None, gy), exact=False)
slopes(
    F.binary_sigmoid, "dy/dx = 1/2 where |x| < 1, else 0: the derivative of (x + 1) / 2, cut off at 0 and 1",
    lambda x: 0.5 * F.less_scalar(F.abs(x), val=1.0), exact=False,
)  # fmt: skip
slopes(
    F.binary_tanh, "dy/dx = 1 where |x| < 1, else 0: the derivative of x, cut off at -1 and 1",
    lambda x: F.less_scalar(F.abs(x), val=1.0), exact=False,
)  # fmt: skip


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
    """dy/dx = 1 where |x| is not rounded above the largest power, else 0"""
    (x,) = f.inputs
    if not (f.args["quantize"] and f.args["ste_fine_grained"]):
        return gy
    _, high = pow2_range(f.args["sign"], f.args["with_zero"], f.args["n"], f.args["m"])
    passing = F.less_scalar(F.abs(x), val=high * math.sqrt(2))
    return gy * (passing if f.args["sign"] else passing * F.greater_equal_scalar(x, val=0.0))


gradients(F.prune, "dy/dx = 1", lambda gy: gy, exact=False)
gradients(
    F.quantize_linear, "dy/dx = 1 / scale, dy/dscale = -x / scale^2, dy/dzero_point = 1",
    lambda gy, x, scale: (gy / scale, -gy * x * scale**-2, gy), exact=False,
)  # fmt: skip
