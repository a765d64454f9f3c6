"""Backward rules of regions: averages over boxes are linear in the images, products of patches in each of two. As in
nnabla boxes get no gradient."""

import nngrad.functions as F

from .rules import adjoint_pair, bilinear_family

adjoint_pair(F.roi_align, F.roi_align_backward)
bilinear_family(F.displaced_products, F.displaced_products_left_grad, F.displaced_products_right_grad)
