"""Backward rule of warps: the position within a cell; the rest is made of weighted sums of points."""

import nngrad.functions as F

from .rules import non_differentiable, slopes

slopes(
    F.cell_fraction, "dy/dx = 1, -1 in a reflection, 0 where the last pixel is repeated",
    lambda x, size, padding: F.cell_slope(x, size=size, padding=padding),
)  # fmt: skip
non_differentiable(F.cell_slope, F.cell_indices)
