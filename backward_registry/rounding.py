"""Backward rules of step functions, whose derivative is 0."""

import nngrad.functions as F

from .rules import non_differentiable

non_differentiable(F.rounded, F.signum)
