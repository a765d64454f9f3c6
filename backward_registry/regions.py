"""Backward rules of regions: averages over boxes are linear in the images, products of patches in each of two."""

from __future__ import annotations

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .rules import backward, bilinear_family, without_shape


@backward(F.roi_align)
def roi_align_backward(f: Function, gy: Variable) -> tuple[Variable, None]:
    """The transpose in the images; as in nnabla boxes get no gradient"""
    x, boxes = f.inputs
    return F.roi_align_backward(gy, boxes, shape=x.shape, **f.args), None


@backward(F.roi_align_backward)
def roi_align_backward_backward(f: Function, gx: Variable) -> tuple[Variable, None]:
    """The averages of the gradient"""
    return F.roi_align(gx, f.inputs[1], **without_shape(f)), None


bilinear_family(F.displaced_products, F.displaced_products_left_grad, F.displaced_products_right_grad)
