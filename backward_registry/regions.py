"""Backward rules of regions: averages over boxes are linear in the images. As in nnabla boxes get no gradient."""

import nngrad.functions as F

from .rules import adjoint_pair

adjoint_pair(F.roi_align, F.roi_align_backward)
