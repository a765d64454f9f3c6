"""Comparisons and logic are piecewise constant: no gradient passes through them."""

import nngrad.functions as F

from .rules import non_differentiable

non_differentiable(
    F.equal,
    F.equal_scalar,
    F.not_equal,
    F.not_equal_scalar,
    F.less,
    F.less_scalar,
    F.less_equal,
    F.less_equal_scalar,
    F.greater,
    F.greater_scalar,
    F.greater_equal,
    F.greater_equal_scalar,
    F.logical_and,
    F.logical_and_scalar,
    F.logical_or,
    F.logical_or_scalar,
    F.logical_xor,
    F.logical_xor_scalar,
    F.logical_not,
)
