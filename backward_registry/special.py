"""Backward rules of special functions."""

import math

import nngrad.functions as F
from nngrad.functions.array import zeros_like
from nngrad.graph import Function, Variable

from .rules import backward, slopes

# ---------------------------------------------------------------- logarithms, exponentials, roots

slopes(F.log1p, "dy/dx = 1/(1 + x)", lambda x: (1 + x) ** -1)
slopes(F.expm1, "dy/dx = exp(x), which is not y + 1: that is 0 where y is rounded to -1", lambda x: F.exp(x))
slopes(F.log2, "dy/dx = 1/(x log 2)", lambda x: 1 / math.log(2) * x**-1)
slopes(F.log10, "dy/dx = 1/(x log 10)", lambda x: 1 / math.log(10) * x**-1)
slopes(F.rsqrt, "dy/dx = -x^(-3/2) / 2", lambda x: -0.5 * x**-1.5)


@backward(F.logaddexp)
def logaddexp_backward(f: Function, gy: Variable) -> list[Variable]:
    """dy/dx0 = sigmoid(x0 - x1) and dy/dx1 = sigmoid(x1 - x0); one half each where both are the same infinity"""
    (x0, x1), (y,) = f.inputs, f.outputs
    same = F.logical_and(F.equal(x0, x1), F.greater_equal_scalar(F.abs(y), val=math.inf))
    difference = F.where(same, F.constant(0.0, shape=y.shape, dtype=y.dtype), x0 - x1)
    return [gy * F.sigmoid(difference), gy * F.sigmoid(-difference)]


slopes(F.xlogy, "dy/dx0 = log(x1) and dy/dx1 = x0/x1", lambda x0, x1: (F.log(x1), x0 / x1))
slopes(F.xlog1py, "dy/dx0 = log(1 + x1) and dy/dx1 = x0/(1 + x1)", lambda x0, x1: (F.log1p(x1), x0 / (1 + x1)))

# ---------------------------------------------------------------- of the error function

slopes(F.erfc, "dy/dx = -2/sqrt(pi) exp(-x^2)", lambda x: -2 / math.sqrt(math.pi) * F.exp(-(x * x)))
slopes(F.erfcx, "dy/dx = 2 x y - 2/sqrt(pi) = -2 erfcx_integral(x, 1)", lambda x: -2 * F.erfcx_integral(x, order=1))
slopes(
    F.erfcx_integral, "dy/dx = -2 (n + 1) times the one of the next order",
    lambda x, order: -2 * (order + 1) * F.erfcx_integral(x, order=order + 1),
)  # fmt: skip
slopes(F.erfinv, "dy/dx = sqrt(pi)/2 exp(y^2)", lambda y: math.sqrt(math.pi) / 2 * F.exp(y * y))
slopes(F.erfcinv, "dy/dx = -sqrt(pi)/2 exp(y^2)", lambda y: -math.sqrt(math.pi) / 2 * F.exp(y * y))
slopes(F.ndtr, "dy/dx = exp(-x^2/2) / sqrt(2 pi)", lambda x: 1 / math.sqrt(2 * math.pi) * F.exp(-0.5 * (x * x)))
slopes(F.ndtri, "dy/dx = sqrt(2 pi) exp(y^2/2)", lambda y: math.sqrt(2 * math.pi) * F.exp(0.5 * (y * y)))


def ndtr_share(x: Variable) -> Variable:
    """The density over `ndtr(x)`. Below 0 both underflow; above, `erfcx` would overflow, and derivatives cancel."""
    is_above, zero = F.greater_scalar(x, val=0.0), zeros_like(x)
    above, below = F.where(is_above, x, zero), F.where(is_above, zero, x)
    density = 1 / math.sqrt(2 * math.pi) * F.exp(-0.5 * (above * above))
    scaled = math.sqrt(2 / math.pi) * F.erfcx(-math.sqrt(0.5) * below) ** -1
    return F.where(is_above, density * F.ndtr(above) ** -1, scaled)


slopes(F.log_ndtr, "dy/dx = exp(-x^2/2) / (sqrt(2 pi) ndtr(x)) = sqrt(2/pi) / erfcx(-x/sqrt(2))", ndtr_share)

# ---------------------------------------------------------------- of the gamma function

slopes(F.lgamma, "dy/dx = digamma(x)", lambda x: F.digamma(x))
slopes(F.digamma, "dy/dx = the first derivative of digamma", lambda x: F.digamma_derivative(x, order=1))
slopes(
    F.digamma_derivative, "dy/dx = the derivative of the next order",
    lambda x, order: F.digamma_derivative(x, order=order + 1),
)  # fmt: skip
slopes(
    F.digamma_difference,
    "dy/dx0 is the difference of the derivatives of the next order, dy/dx1 the derivative of that order at x0 + x1",
    lambda x0, x1, order: (F.digamma_difference(x0, x1, order + 1), F.digamma_derivative(x0 + x1, order=order + 1)),
)  # fmt: skip
slopes(
    F.betaln, "dy/dx0 = digamma(x0) - digamma(x0 + x1), and likewise for x1",
    lambda x0, x1: (-F.digamma_difference(x0, x1), -F.digamma_difference(x1, x0)),
)  # fmt: skip
slopes(F.hurwitz_zeta, "dy/dq = -x zeta(x + 1, q)", lambda q, x: -x * F.hurwitz_zeta(q, x=x + 1))
