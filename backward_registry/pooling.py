"""Backward rules of pooling. For fixed maxima each is linear, and the rule is its transpose."""

from __future__ import annotations

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .rules import adjoint_pair, backward, gradients


@backward(F.max_pooling)
def max_pooling_backward(f: Function, gy: Variable) -> Variable:
    """The gradient, added at the positions of the maxima"""
    (x,) = f.inputs
    return F.max_pooling_backward(gy, x, **f.args)


adjoint_pair(F.max_pooling_backward, F.max_pooling_select)
adjoint_pair(F.sum_pooling, F.sum_pooling_backward)
adjoint_pair(F.average_pooling, F.average_pooling_backward)
gradients(
    F.unpooling, "The sum over the copies",
    lambda gy, kernel, channel_last: F.sum_pooling(gy, kernel=kernel, channel_last=channel_last),
)  # fmt: skip
