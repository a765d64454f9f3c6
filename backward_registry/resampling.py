"""Backward rules of interpolation: it is linear, and the rule is its transpose."""

import nngrad.functions as F

from .rules import adjoint_pair

adjoint_pair(F.resample, F.resample_transpose)
