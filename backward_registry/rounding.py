"""Backward rules of steps, which are flat."""

import nngrad.functions as F

from .rules import non_differentiable

non_differentiable(F.rounded, F.signum)
