"""Backward rules of pooling. Where the maxima are found, each is linear and the rule is its transpose."""

from __future__ import annotations

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .rules import adjoint_pair, backward


@backward(F.max_pooling)
def max_pooling_backward(f: Function, gy: Variable) -> Variable:
    """The gradient, where the maxima are"""
    (x,) = f.inputs
    return F.max_pooling_backward(gy, x, **f.args)


@backward(F.max_pooling_backward)
def max_pooling_backward_backward(f: Function, gx: Variable) -> tuple[Variable, None]:
    """The gradient at the maxima; where they are has no derivative"""
    _, x = f.inputs
    return F.max_pooling_select(gx, x, **f.args), None


@backward(F.max_pooling_select)
def max_pooling_select_backward(f: Function, gy: Variable) -> tuple[Variable, None]:
    """The gradient, where the maxima are; where they are has no derivative"""
    _, x = f.inputs
    return F.max_pooling_backward(gy, x, **f.args), None


adjoint_pair(F.sum_pooling, F.sum_pooling_backward)
adjoint_pair(F.average_pooling, F.average_pooling_backward)


@backward(F.unpooling)
def unpooling_backward(f: Function, gy: Variable) -> Variable:
    """The sum over the copies"""
    return F.sum_pooling(gy, **f.args)
