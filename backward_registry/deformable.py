"""Backward rules of cells of images. Where they are known, each is linear and the rule is its transpose."""

import nngrad.functions as F

from .rules import adjoint_pair

adjoint_pair(F.take_cells, F.put_cells)
