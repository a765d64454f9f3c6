"""Backward rules of reading and writing pixels. For fixed positions each is linear, and the rule is its transpose."""

import nngrad.functions as F

from .rules import adjoint_pair

adjoint_pair(F.take_cells, F.put_cells)
