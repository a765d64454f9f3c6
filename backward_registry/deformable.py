"""Backward rules of cells of images. Where they are known, each is linear and the rule is its transpose."""

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .rules import backward


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
