"""Backward rules of what is no finite number, of remainders and of shifts of bits."""

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .rules import backward, non_differentiable

non_differentiable(F.isnan, F.isinf)


@backward(F.mod2)
def mod2_backward(f: Function, gy: Variable) -> tuple[Variable, Variable]:
    """dy/dx0 = 1, dy/dx1 = -q where y = x0 - q x1 and q is whole"""
    return gy, -gy * F.whole_quotient(*f.inputs)


non_differentiable(F.whole_quotient, F.bit_shift)
