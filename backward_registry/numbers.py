"""Backward rules for NaN and infinity, remainders and bit shifts."""

import nngrad.functions as F

from .rules import gradients, non_differentiable

non_differentiable(F.isnan, F.isinf)
gradients(
    F.mod2, "dy/dx0 = 1, dy/dx1 = -q where y = x0 - q x1 and q is whole",
    lambda gy, x0, x1: (gy, -gy * F.whole_quotient(x0, x1)),
)  # fmt: skip
non_differentiable(F.whole_quotient, F.gcd, F.lcm, F.bit_shift)
