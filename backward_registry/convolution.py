"""Backward rules of convolutions: the three sides of one trilinear form give them at every order."""

import nngrad.functions as F

from .rules import bilinear_family

bilinear_family(F.convolve, F.convolve_data_grad, F.convolve_filter_grad)
