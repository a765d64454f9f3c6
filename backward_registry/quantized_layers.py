"""Backward rule of incremental network quantisation: the gradient passes through the rounding of weights."""

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .rules import backward


@backward(F.inq_quantize, exact=False)
def inq_quantize_backward(f: Function, gy: Variable, gindicators: Variable) -> tuple[Variable | None, ...]:
    """dy/dweight = 1"""
    return (gy, *[None] * (len(f.inputs) - 1))
