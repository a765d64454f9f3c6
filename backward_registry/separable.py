"""Backward rules of adaptive separable convolution: one form that is linear in four arrays gives them all."""

import nngrad.functions as F

from .rules import multilinear_family

multilinear_family(
    F.adaptive_separable_convolution, F.separable_data_grad,
    F.separable_vertical_grad, F.separable_horizontal_grad,
)
