"""The ops of families that pass no gradient at all: bits, comparison, detection, rounding, sets and stochastic."""

import nngrad.functions as F

from .rules import non_differentiable

# Integers
non_differentiable(F.integer_quotient, F.bitwise, F.bits_of)

# Comparisons and logic, which are piecewise constant
for _name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or",
              "logical_xor"):  # fmt: skip
    non_differentiable(getattr(F, _name), getattr(F, f"{_name}_scalar"))
non_differentiable(F.logical_not)

# Non-maximum suppression
non_differentiable(F.nms_mask, F.ranked_boxes, F.selected_rows)

# Step functions, whose derivative is 0
non_differentiable(F.rounded, F.signum)

# Indices and uniqueness of elements, which are piecewise constant
non_differentiable(F.searchsorted, F.true_places, F.true_ranks, F.distinct)

# Random draws
non_differentiable(F.bernoulli, F.uniform, F.normal, F.integers, F.distinct_integers, F.subkey)
