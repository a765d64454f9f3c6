"""Backward rules of incomplete gamma functions and exponential integrals."""

import math

import nngrad.functions as F
from nngrad.graph import Variable

from .rules import slopes

_LARGE = 100.0
"""From here on the gamma function, and powers with such exponents, come near the largest number."""


def _gamma_density(x: Variable, a: float) -> Variable:
    """x^(a-1) exp(-x) / Gamma(a)"""
    if a > _LARGE:
        return F.exp((a - 1) * F.log(x) - x - math.lgamma(a))
    return 1 / math.gamma(a) * x ** (a - 1) * F.exp(-x)


slopes(F.gammainc, "dy/dx = x^(a-1) exp(-x) / Gamma(a)", _gamma_density)
slopes(F.gammaincc, "dy/dx = -x^(a-1) exp(-x) / Gamma(a)", lambda x, a: -_gamma_density(x, a))
slopes(F.expi, "dy/dx = exp(x) / x", lambda x: F.exp(x) / x)
slopes(
    F.expn, "dy/dx = -E_(n-1)(x), with E_0(x) = exp(-x) / x",
    lambda x, n: -(F.expn(x, n=n - 1) if n > 1 else F.exp(-x) / x),
)  # fmt: skip
