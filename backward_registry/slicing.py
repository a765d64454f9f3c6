"""Backward rules of slicing: reading and writing a part are each other's transpose."""

import nngrad.functions as F

from .rules import adjoint_pair

adjoint_pair(F.take_slices, F.put_slices)
adjoint_pair(F.take_points, F.put_points)
