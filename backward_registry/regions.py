"""Backward rules of regions: averages over boxes are linear in the images. As in nnabla boxes get no gradient."""

import nngrad.functions as F

from .rules import adjoint_pair

adjoint_pair(F.box_averages, F.box_averages_transpose)
