"""Backward rules of cells of images. Where they are known, each is linear and the rule is its transpose."""

import nngrad.functions as F

from .rules import gradients

gradients(
    F.take_cells, "The gradient put back to the cells; where they are has no derivative",
    lambda gy, x, rows, columns: (F.put_cells(gy, rows, columns, shape=x.shape), None, None),
)  # fmt: skip
gradients(
    F.put_cells, "The gradient at the cells; where they are has no derivative",
    lambda gy, rows, columns: (F.take_cells(gy, rows, columns), None, None),
)  # fmt: skip
