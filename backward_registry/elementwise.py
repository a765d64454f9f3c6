"""Backward rules of elementwise functions of one Variable."""

import math

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .arithmetic import over_root
from .rules import backward, gradients, slopes

# ---------------------------------------------------------------- sign and rounding

gradients(F.abs, "dy/dx = 1 where x >= 0, else -1", lambda gy, x: F.where(F.greater_equal_scalar(x, val=0.0), gy, -gy))
for _op in (F.sign, F.floor, F.ceil, F.round):
    gradients(_op, "The gradient passes as if y were x.", lambda gy: gy, exact=False)

# ---------------------------------------------------------------- powers and exponentials

slopes(F.square, "dy/dx = 2x", lambda x: 2 * x)
slopes(F.one_minus_square, "dy/dx = -2x", lambda x: -2 * x)
slopes(F.cbrt, "dy/dx = y^-2 / 3, also where x is negative", lambda y: y**-2 / 3)
gradients(
    F.reciprocal, "dy/dx = -x^-2; powers, unlike products of y, stay single terms at every order",
    lambda gy, x: -gy * x**-2,
)  # fmt: skip


@backward(F.sqrt)
def sqrt_backward(f: Function, gy: Variable) -> Variable:
    """dy/dx = x^(-1/2) / 2 = 1 / (2 y), which a factor y of the gradient cancels"""
    return 0.5 * over_root(f, gy)


slopes(F.exp, "dy/dx = y", lambda y: y)
slopes(F.log, "dy/dx = 1/x", lambda x: x**-1)
slopes(F.erf, "dy/dx = 2/sqrt(pi) exp(-x^2)", lambda x: 2 / math.sqrt(math.pi) * F.exp(-(x * x)))

# ---------------------------------------------------------------- trigonometry

slopes(F.sin, "dy/dx = cos x", lambda x: F.cos(x))
slopes(F.cos, "dy/dx = -sin x", lambda x: -F.sin(x))
slopes(F.tan, "dy/dx = 1 + y^2", lambda y: 1 + y * y)
slopes(F.asin, "dy/dx = 1 / sqrt(1 - x^2)", lambda x: F.one_minus_square(x) ** -0.5)
gradients(F.acos, "dy/dx = -1 / sqrt(1 - x^2)", lambda gy, x: -gy * F.one_minus_square(x) ** -0.5)
slopes(
    F.atan,
    "dy/dx = 1 / (1 + x^2), as a function that with x / (1 + x^2) is closed under differentiation: powers of 1 + x^2 "
    "overflow long before derivatives vanish",
    lambda x: F.over_square_sum(1.0, x),
)  # fmt: skip


slopes(
    F.atan2, "dy/dx0 = x1 / (x0^2 + x1^2), dy/dx1 = -x0 / (x0^2 + x1^2), and 0 where both are 0",
    lambda x0, x1: (F.over_square_sum(x1, x0), -F.over_square_sum(x0, x1)),
)  # fmt: skip


@backward(F.over_square_sum)
def over_square_sum_backward(f: Function, gy: Variable) -> tuple[Variable, Variable]:
    """dy/dx0 = v^2 - y^2, dy/dx1 = -2 y v with v = x1 / (x0^2 + x1^2)"""
    (x0, x1), (y,) = f.inputs, f.outputs
    v = F.over_square_sum(x1, x0)
    return gy * ((v - y) * (v + y)), gy * (-2 * y * v)


slopes(F.sinc, "dy/dx is the first derivative of the family", lambda x: F.sinc_derivative(x, order=1))
slopes(
    F.sinc_derivative, "dy/dx is the next derivative of the family",
    lambda x, order: F.sinc_derivative(x, order=order + 1),
)  # fmt: skip

# ---------------------------------------------------------------- hyperbolic functions

slopes(F.sinh, "dy/dx = cosh x", lambda x: F.cosh(x))
slopes(F.cosh, "dy/dx = sinh x", lambda x: F.sinh(x))
gradients(F.asinh, "dy/dx = 1 / sqrt(x^2 + 1) = 1 / cosh y, in which nothing overflows", lambda gy, y: gy / F.cosh(y))
slopes(
    F.acosh, "dy/dx = 1 / sqrt(x^2 - 1), in factors whose derivatives all have one sign and do not overflow",
    lambda x: (x - 1) ** -0.5 * (x + 1) ** -0.5,
)  # fmt: skip
gradients(F.atanh, "dy/dx = 1 / (1 - x^2)", lambda gy, x: gy / F.one_minus_square(x))

# ---------------------------------------------------------------- nothing

gradients(F.identity, "dy/dx = 1", lambda gy: gy)
