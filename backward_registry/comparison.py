"""Comparisons and logic are piecewise constant: no gradient passes through them."""

import nngrad.functions as F

from .rules import non_differentiable

for _name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or",
              "logical_xor"):  # fmt: skip
    non_differentiable(getattr(F, _name), getattr(F, f"{_name}_scalar"))
non_differentiable(F.logical_not)
