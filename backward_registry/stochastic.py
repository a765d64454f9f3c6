"""Random draws, which have no gradient."""

import nngrad.functions as F

from .rules import non_differentiable

non_differentiable(F.bernoulli, F.uniform, F.normal, F.integers, F.distinct_integers, F.subkey)
