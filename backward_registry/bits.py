"""Integer functions, which are not differentiable."""

import nngrad.functions as F

from .rules import non_differentiable

non_differentiable(F.integer_quotient, F.bitwise, F.bits_of)
