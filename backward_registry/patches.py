"""Backward rules of im2col and col2im. They are linear: the rule is the transpose."""

import nngrad.functions as F

from .rules import adjoint_pair

adjoint_pair(F.im2col, F.col2im)
