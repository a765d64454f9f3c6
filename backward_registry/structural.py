"""Backward rules that follow from what an op is. Ops of files that have none here of their name are in this one."""

import nngrad.functions as F

from .rules import adjoint_pair, bilinear_family, multilinear_family, non_differentiable

# The three sides of one trilinear form, and the four of one that is linear in four arrays, give all, at every order.
bilinear_family(F.convolve, F.convolve_data_grad, F.convolve_filter_grad)
multilinear_family(
    F.adaptive_separable_convolution, F.separable_data_grad, F.separable_vertical_grad, F.separable_horizontal_grad
)

# Linear ops: the rule of each is the other, its transpose.
adjoint_pair(F.im2col, F.col2im)
adjoint_pair(F.resample, F.resample_transpose)

# Random draws, functions of whole numbers, and what is piecewise constant: where elements are, which of them are
# distinct or kept, and how they compare. No gradient passes.
non_differentiable(F.bernoulli, F.uniform, F.normal, F.integers, F.distinct_integers, F.subkey, F.random_offsets)
non_differentiable(F.integer_quotient, F.bitwise, F.bits_of)
non_differentiable(F.rounded, F.signum)
non_differentiable(F.searchsorted, F.true_places, F.true_ranks, F.distinct)
non_differentiable(F.nms_mask, F.ranked_boxes, F.selected_rows)
non_differentiable(F.logical_not)
for _name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or",
              "logical_xor"):  # fmt: skip
    non_differentiable(getattr(F, _name), getattr(F, f"{_name}_scalar"))
