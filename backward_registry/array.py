"""Backward rules of making and casting arrays, and of diagonals. They are linear: the rule is the transpose."""

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .rules import adjoint_pair, backward, gradients, non_differentiable

# ---------------------------------------------------------------- creation

non_differentiable(F.constant, F.arange, F.linspace, F.one_hot)


# ---------------------------------------------------------------- dtype and sizes

non_differentiable(F.shape)


gradients(F.cast, "The gradient, cast back", lambda gy, x: F.cast(gy, dtype=x.dtype))

# ---------------------------------------------------------------- diagonals

adjoint_pair(F.matrix_diag, F.matrix_diag_part)


@backward(F.trilu)
def trilu_backward(f: Function, gy: Variable) -> Variable:
    """The same triangle of the gradient"""
    return F.trilu(gy, **f.args)
