"""Backward rules of special functions."""

import math

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .rules import backward

# ---------------------------------------------------------------- logarithms, exponentials, roots


@backward(F.log1p)
def log1p_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1/(1 + x)"""
    (x,) = f.inputs
    return gy * (1 + x) ** -1


@backward(F.expm1)
def expm1_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = exp(x), which is not y + 1: that is 0 where y is rounded to -1"""
    (x,) = f.inputs
    return gy * F.exp(x)


@backward(F.log2)
def log2_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1/(x log 2)"""
    (x,) = f.inputs
    return gy * (1 / math.log(2) * x**-1)


@backward(F.log10)
def log10_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 1/(x log 10)"""
    (x,) = f.inputs
    return gy * (1 / math.log(10) * x**-1)


@backward(F.rsqrt)
def rsqrt_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = -x^(-3/2) / 2"""
    (x,) = f.inputs
    return gy * (-0.5 * x**-1.5)


@backward(F.logaddexp)
def logaddexp_backward(f: Function, gy: Variable) -> list[Variable]:
    """dy/dx0 = sigmoid(x0 - x1) and dy/dx1 = sigmoid(x1 - x0); one half each where both are the same infinity"""
    (x0, x1), (y,) = f.inputs, f.outputs
    same = F.logical_and(F.equal(x0, x1), F.greater_equal_scalar(F.abs(y), val=math.inf))
    difference = F.where(same, F.constant(0.0, shape=y.shape, dtype=y.dtype), x0 - x1)
    return [gy * F.sigmoid(difference), gy * F.sigmoid(-difference)]


@backward(F.xlogy)
def xlogy_backward(f: Function, gy: Variable) -> list[Variable]:
    """dy/dx0 = log(x1) and dy/dx1 = x0/x1"""
    x0, x1 = f.inputs
    return [gy * F.log(x1), gy * (x0 / x1)]


@backward(F.xlog1py)
def xlog1py_backward(f: Function, gy: Variable) -> list[Variable]:
    """dy/dx0 = log(1 + x1) and dy/dx1 = x0/(1 + x1)"""
    x0, x1 = f.inputs
    return [gy * F.log1p(x1), gy * (x0 / (1 + x1))]


# ---------------------------------------------------------------- of the error function


@backward(F.erfc)
def erfc_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = -2/sqrt(pi) exp(-x^2)"""
    (x,) = f.inputs
    return gy * (-2 / math.sqrt(math.pi) * F.exp(-(x * x)))


@backward(F.erfcx)
def erfcx_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = 2 x y - 2/sqrt(pi)"""
    (x,), (y,) = f.inputs, f.outputs
    return gy * (2 * x * y - 2 / math.sqrt(math.pi))


@backward(F.erfinv)
def erfinv_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = sqrt(pi)/2 exp(y^2)"""
    (y,) = f.outputs
    return gy * (math.sqrt(math.pi) / 2 * F.exp(y * y))


@backward(F.erfcinv)
def erfcinv_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = -sqrt(pi)/2 exp(y^2)"""
    (y,) = f.outputs
    return gy * (-math.sqrt(math.pi) / 2 * F.exp(y * y))


@backward(F.ndtr)
def ndtr_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = exp(-x^2/2) / sqrt(2 pi)"""
    (x,) = f.inputs
    return gy * (1 / math.sqrt(2 * math.pi) * F.exp(-0.5 * (x * x)))


@backward(F.ndtri)
def ndtri_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = sqrt(2 pi) exp(y^2/2)"""
    (y,) = f.outputs
    return gy * (math.sqrt(2 * math.pi) * F.exp(0.5 * (y * y)))


@backward(F.log_ndtr)
def log_ndtr_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = exp(-x^2/2) / (sqrt(2 pi) ndtr(x)) = sqrt(2/pi) / erfcx(-x/sqrt(2))"""
    (x,) = f.inputs
    return gy * (math.sqrt(2 / math.pi) * F.erfcx(-math.sqrt(0.5) * x) ** -1)


# ---------------------------------------------------------------- of the gamma function


@backward(F.lgamma)
def lgamma_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = digamma(x)"""
    (x,) = f.inputs
    return gy * F.digamma(x)


@backward(F.digamma)
def digamma_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = the first derivative of digamma"""
    (x,) = f.inputs
    return gy * F.digamma_derivative(x, order=1)


@backward(F.digamma_derivative)
def digamma_derivative_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = the derivative of the next order"""
    (x,) = f.inputs
    return gy * F.digamma_derivative(x, order=f.args["order"] + 1)


@backward(F.hurwitz_zeta)
def hurwitz_zeta_backward(f: Function, gy: Variable) -> Variable:
    """dy/dq = -x zeta(x + 1, q)"""
    (q,) = f.inputs
    x: float = f.args["x"]
    return gy * (-x * F.hurwitz_zeta(q, x=x + 1))
