"""Indices and uniqueness of elements are piecewise constant: no gradient passes."""

import nngrad.functions as F

from .rules import non_differentiable

non_differentiable(F.searchsorted, F.true_places, F.true_ranks, F.distinct)
