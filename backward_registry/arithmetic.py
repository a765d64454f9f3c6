"""Backward rules of sums, products, powers and extrema. `Grad` sums over broadcast axes."""

import nngrad.functions as F

from . import backward


@backward(F.add2)
def add2_backward(f, gy):
    """dy/dx0 = 1, dy/dx1 = 1"""
    return gy, gy


@backward(F.sub2)
def sub2_backward(f, gy):
    """dy/dx0 = 1, dy/dx1 = -1"""
    return gy, -gy


@backward(F.mul2)
def mul2_backward(f, gy):
    """dy/dx0 = x1, dy/dx1 = x0"""
    x0, x1 = f.inputs
    return gy * x1, gy * x0


@backward(F.add_n)
def add_n_backward(f, gy):
    """dy/dxi = 1"""
    return [gy] * len(f.inputs)


@backward(F.add_scalar)
def add_scalar_backward(f, gy):
    """dy/dx = 1"""
    return gy


@backward(F.mul_scalar)
def mul_scalar_backward(f, gy):
    """dy/dx = val"""
    return gy * f.args["val"]


@backward(F.r_sub_scalar)
def r_sub_scalar_backward(f, gy):
    """dy/dx = -1"""
    return -gy


@backward(F.pow_scalar)
def pow_scalar_backward(f, gy):
    """dy/dx = val x^(val - 1), and 0 where val is 0"""
    (x,) = f.inputs
    val = f.args["val"]
    return None if val == 0 else gy * (val * x ** (val - 1))
