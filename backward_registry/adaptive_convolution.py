"""Backward rules of convolutions that inputs adapt place by place."""

import nngrad.functions as F
from nngrad.graph import Function, Variable

from . import backward, multilinear_family

# ---------------------------------------------------------------- cells of images


@backward(F.take_cells)
def take_cells_backward(f: Function, gy: Variable) -> tuple[Variable, None, None]:
    """The gradient put back to the cells; where they are has no derivative"""
    x, rows, columns = f.inputs
    return F.put_cells(gy, rows, columns, shape=x.shape), None, None


@backward(F.put_cells)
def put_cells_backward(f: Function, gx: Variable) -> tuple[Variable, None, None]:
    """The gradient at the cells; where they are has no derivative"""
    _, rows, columns = f.inputs
    return F.take_cells(gx, rows, columns), None, None


# ---------------------------------------------------------------- a kernel for each place

multilinear_family(
    F.adaptive_separable_convolution, F.separable_data_grad,
    F.separable_vertical_grad, F.separable_horizontal_grad,
)
