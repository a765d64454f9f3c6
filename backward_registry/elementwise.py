"""Backward rules of elementwise functions of one Variable."""

import math

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .reduction import divided
from .rules import backward

# ---------------------------------------------------------------- sign and rounding


@backward(F.abs)
def abs_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1 where x >= 0, else -1"""
    (x,) = f.inputs
    return F.where(F.greater_equal_scalar(x, val=0.0), gy, -gy)


def straight_through(f: Function, gy: Variable) -> Variable:
    """The gradient passes as if y were x."""
    return gy


for _op in (F.sign, F.floor, F.ceil, F.round):
    backward(_op, exact=False)(straight_through)


# ---------------------------------------------------------------- powers and exponentials


@backward(F.square)
def square_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 2x"""
    (x,) = f.inputs
    return gy * (2 * x)


@backward(F.one_minus_square)
def one_minus_square_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = -2x"""
    (x,) = f.inputs
    return gy * (-2 * x)


@backward(F.cbrt)
def cbrt_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = y^-2 / 3, also where x is negative"""
    (y,) = f.outputs
    return gy * (y**-2 / 3)


@backward(F.reciprocal)
def reciprocal_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = -x^-2; powers, unlike products of y, stay single terms at every order"""
    (x,) = f.inputs
    return -gy * x**-2


@backward(F.sqrt)
def sqrt_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = x^(-1/2) / 2"""
    (x,) = f.inputs
    return gy * (0.5 * x**-0.5)


@backward(F.exp)
def exp_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = y"""
    (y,) = f.outputs
    return gy * y


@backward(F.log)
def log_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1/x"""
    (x,) = f.inputs
    return gy * x**-1


@backward(F.erf)
def erf_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 2/sqrt(pi) exp(-x^2)"""
    (x,) = f.inputs
    return gy * (2 / math.sqrt(math.pi) * F.exp(-(x * x)))


# ---------------------------------------------------------------- trigonometry


@backward(F.sin)
def sin_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = cos x"""
    (x,) = f.inputs
    return gy * F.cos(x)


@backward(F.cos)
def cos_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = -sin x"""
    (x,) = f.inputs
    return gy * -F.sin(x)


@backward(F.tan)
def tan_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1 + y^2"""
    (y,) = f.outputs
    return gy * (1 + y * y)


@backward(F.asin)
def asin_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1 / sqrt(1 - x^2)"""
    (x,) = f.inputs
    return gy * F.one_minus_square(x) ** -0.5


@backward(F.acos)
def acos_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = -1 / sqrt(1 - x^2)"""
    (x,) = f.inputs
    return -gy * F.one_minus_square(x) ** -0.5


@backward(F.atan)
def atan_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1 / (1 + x^2)"""
    (x,) = f.inputs
    return gy / (1 + x * x)


@backward(F.atan2)
def atan2_backward(f: Function, gy: Variable) -> tuple[Variable, Variable]:
    """dy/dx0 = x1 / (x0^2 + x1^2), dy/dx1 = -x0 / (x0^2 + x1^2), and 0 where both are 0"""
    x0, x1 = f.inputs
    g = divided(gy, x0 * x0 + x1 * x1)
    return g * x1, -g * x0


@backward(F.sinc)
def sinc_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx is the first derivative of the family"""
    (x,) = f.inputs
    return gy * F.sinc_derivative(x, order=1)


@backward(F.sinc_derivative)
def sinc_derivative_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx is the next derivative of the family"""
    (x,) = f.inputs
    return gy * F.sinc_derivative(x, order=f.args["order"] + 1)


# ---------------------------------------------------------------- hyperbolic functions


@backward(F.sinh)
def sinh_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = cosh x"""
    (x,) = f.inputs
    return gy * F.cosh(x)


@backward(F.cosh)
def cosh_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = sinh x"""
    (x,) = f.inputs
    return gy * F.sinh(x)


@backward(F.asinh)
def asinh_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1 / sqrt(x^2 + 1) = 1 / cosh y, in which nothing overflows"""
    (y,) = f.outputs
    return gy / F.cosh(y)


@backward(F.acosh)
def acosh_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1 / sqrt(x^2 - 1)"""
    (x,) = f.inputs
    return gy * ((x - 1) * (x + 1)) ** -0.5


@backward(F.atanh)
def atanh_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1 / (1 - x^2)"""
    (x,) = f.inputs
    return gy / F.one_minus_square(x)


# ---------------------------------------------------------------- nothing


@backward(F.identity)
def identity_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1"""
    return gy
