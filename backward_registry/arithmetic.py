"""Backward rules of sums, products, powers, maxima and minima. `Grad` sums over broadcast axes."""

import math
from typing import Any

import nngrad.functions as F
from nngrad.functions.array import filled_like, zeros_like
from nngrad.graph import Function, Variable

from .rules import backward, gradients, slopes


def over_root(f: Function, gy: Variable) -> Variable:
    """`gy / y` for the square root y that `f` computes: infinite where y is 0, unless gy has a factor y."""
    (x,), (y,) = f.inputs, f.outputs
    quotient = F.divided(gy, y)
    cancelled = quotient.parent is None or quotient.parent.op is not F.divided
    return quotient if cancelled else gy * x**-0.5


# ---------------------------------------------------------------- two Variables

gradients(F.add2, "dy/dx0 = 1, dy/dx1 = 1", lambda gy: (gy, gy))
gradients(F.sub2, "dy/dx0 = 1, dy/dx1 = -1", lambda gy: (gy, -gy))
slopes(F.mul2, "dy/dx0 = x1, dy/dx1 = x0", lambda x0, x1: (x1, x0))
gradients(F.div2, "dy/dx0 = 1/x1, dy/dx1 = -y/x1", lambda gy, x1, y: (gy / x1, -(gy / x1) * y))
gradients(
    F.divided, "dy/dx0 = 1/x1, dy/dx1 = -x0/x1^2, and 0 where x1 is 0",
    lambda gy, x1, y: (F.divided(gy, x1), -F.divided(gy * y, x1)),
)  # fmt: skip


@backward(F.directed)
def directed_backward(f: Function, gy: Variable) -> tuple[Variable, Variable, Variable]:
    """d/dg = x/y, and 0 where y is 0; d/dx = g/y, d/dy = -g x/y^2, which are not finite there"""
    g, x, y = f.inputs
    (z,) = f.outputs
    return F.directed(gy, x, y), gy * g / y, -gy * z / y


@backward(F.pow2)
def pow2_backward(f: Function, gy: Variable) -> tuple[Variable, Variable]:
    """dy/dx0 = x1 x0^(x1 - 1), and 0 where both are 0, since x^0 = 1; dy/dx1 = y log x0, and 0 where x0 is 0"""
    x0, x1 = f.inputs
    (y,) = f.outputs
    at_zero = F.equal_scalar(x0, val=0.0)
    one = filled_like(y, 1)
    # Where the base is 0 the exponent has no derivative of any order, mixed ones included.
    exponent = F.where(at_zero, F.unlink(x1), x1)
    lower = F.where(F.logical_and(at_zero, F.equal_scalar(x1, val=0.0)), one, exponent - 1.0)
    gx1 = gy * (y * F.log(F.where(at_zero, one, x0)))
    return gy * (exponent * F.pow2(x0, lower)), F.where(at_zero, zeros_like(gx1), gx1)


def shared(gy: Variable, taken: Variable, ties: Variable) -> Variable:
    """`gy` where the operand attains the extremum, half of it at a tie, else 0. It selects instead of multiplying, so
    that an infinite gradient leaves no NaN on the other operand."""
    return F.where(taken, F.where(ties, 0.5 * gy, gy), zeros_like(gy))


def shared_by_two(gy: Variable, x0: Variable, x1: Variable, first: Variable, second: Variable) -> Any:
    """The gradients of both operands of an extremum, given where each attains it."""
    ties = F.equal(x0, x1)
    return shared(gy, first, ties), shared(gy, second, ties)


gradients(
    F.maximum2, "dy/dx = 1 for the larger operand, 1/2 for each where they are equal",
    lambda gy, x0, x1: shared_by_two(gy, x0, x1, F.greater_equal(x0, x1), F.less_equal(x0, x1)),
)  # fmt: skip
gradients(
    F.minimum2, "dy/dx = 1 for the smaller operand, 1/2 for each where they are equal",
    lambda gy, x0, x1: shared_by_two(gy, x0, x1, F.less_equal(x0, x1), F.greater_equal(x0, x1)),
)  # fmt: skip

# ---------------------------------------------------------------- any number of Variables


@backward(F.add_n)
def add_n_backward(f: Function, gy: Variable) -> list[Variable]:
    """dy/dxi = 1"""
    return [gy] * len(f.inputs)


@backward(F.mul_n)
def mul_n_backward(f: Function, gy: Variable) -> list[Variable]:
    """dy/dxi = the product of the other factors: of all before it and all after it, without division"""
    xs = f.inputs
    before, gxs = gy, [gy]
    for x in xs[:-1]:
        before = before * x
        gxs.append(before)
    after = xs[-1]
    for i in range(len(xs) - 2, -1, -1):
        gxs[i] = gxs[i] * after
        after = after * xs[i] if i else after
    return gxs


# ---------------------------------------------------------------- a Variable and a number

gradients(F.add_scalar, "dy/dx = 1", lambda gy: gy)
slopes(F.mul_scalar, "dy/dx = val", lambda val: val)


@backward(F.pow_scalar)
def pow_scalar_backward(f: Function, gy: Variable) -> Variable | None:
    """dy/dx = val x^(val - 1), and 0 where val is 0; a square root's is 1 / (2 y)"""
    (x,), val = f.inputs, f.args["val"]
    if val == 0.5:
        return 0.5 * over_root(f, gy)
    return None if val == 0 else gy * (val * x ** (val - 1))


gradients(F.r_sub_scalar, "dy/dx = -1", lambda gy: -gy)
slopes(F.r_div_scalar, "dy/dx = -val x^-2", lambda x, val: -val * x**-2)
gradients(
    F.r_pow_scalar, "dy/dx = y log val, and 0 where val is 0",
    lambda gy, y, val: None if val == 0 else gy * (y * (math.log(val) if val > 0 else math.nan)),
)  # fmt: skip
gradients(
    F.maximum_scalar, "dy/dx = 1 where x > val, 1/2 where they are equal",
    lambda gy, x, val: shared(gy, F.greater_equal_scalar(x, val=val), F.equal_scalar(x, val=val)),
)  # fmt: skip
gradients(
    F.minimum_scalar, "dy/dx = 1 where x < val, 1/2 where they are equal",
    lambda gy, x, val: shared(gy, F.less_equal_scalar(x, val=val), F.equal_scalar(x, val=val)),
)  # fmt: skip
