"""Backward rules of parts of arrays. Taking is linear: the rule puts, and the other way round."""

import nngrad.functions as F

from .rules import adjoint_pair

adjoint_pair(F.take_slices, F.put_slices)
adjoint_pair(F.take_points, F.put_points)
