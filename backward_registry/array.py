"""Backward rules of array creation, casts and diagonals. They are linear: the rule is the transpose."""

import nngrad.functions as F

from .rules import adjoint_pair, gradients, non_differentiable

# ---------------------------------------------------------------- creation

non_differentiable(F.constant, F.arange, F.linspace, F.one_hot)


# ---------------------------------------------------------------- dtype and sizes

non_differentiable(F.shape)
gradients(F.cast, "The gradient, cast back", lambda gy, x: F.cast(gy, dtype=x.dtype))

# ---------------------------------------------------------------- diagonals

adjoint_pair(F.matrix_diag, F.matrix_diag_part)
gradients(F.trilu, "The same triangle of the gradient", lambda gy, k, upper: F.trilu(gy, k=k, upper=upper))
