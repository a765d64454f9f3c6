"""Backward rules of orthogonal polynomials."""

import nngrad.functions as F
from nngrad.functions.orthogonal import POLYNOMIALS
from nngrad.graph import Function, Variable

from .rules import backward


@backward(F.orthogonal_polynomial)
def orthogonal_polynomial_backward(f: Function, gy: Variable) -> Variable | None:
    """dy/dx = a number times the polynomial of degree n - 1 of the same or another family, 0 for n = 0"""
    (x,), (degree, family, parameter) = f.inputs, f.arguments
    if degree == 0:
        return None
    factor, family, parameter = POLYNOMIALS[family].slope(degree, parameter)
    return gy * (factor * F.orthogonal_polynomial(x, degree - 1, family, parameter))
