"""Backward rules of Bessel functions."""

import nngrad.functions as F
from nngrad.graph import Variable

from .rules import slopes


def turned(x: Variable, y: Variable) -> Variable:
    """`y` where x is negative, else -y: as in `abs`, the derivative at 0 is the one from above."""
    return F.where(F.greater_equal_scalar(x, val=0.0), -y, y)


slopes(F.i0e, "dy/dx = -sign(x) i0e_derivative(x, 1)", lambda x: turned(x, F.i0e_derivative(x, order=1)))
slopes(
    F.i0e_derivative, "dy/dx = -sign(x) times the one of the next order",
    lambda x, order: turned(x, F.i0e_derivative(x, order=order + 1)),
)  # fmt: skip
slopes(
    F.i1e, "dy/dx = i0e_derivative(x, 2) - i0e_derivative(x, 1), since i1e(x) = i0e(x) - i0e_derivative(x, 1)",
    lambda x: F.i0e_derivative(x, order=2) - F.i0e_derivative(x, order=1),
)  # fmt: skip
slopes(
    F.scaled_bessel_ratio, "dy/dx = x times the one of the next order - sign(x) y",
    lambda x, y, order: x * F.scaled_bessel_ratio(x, order=order + 1) - F.signum(x) * y,
)  # fmt: skip
slopes(
    F.bessel_ratio, "dy/dx = x times the one of the next order",
    lambda x, order: x * F.bessel_ratio(x, order=order + 1),
)  # fmt: skip
slopes(
    F.bessel_first_kind,
    "dy/dx = (J_(n - 1) - J_(n + 1)) / 2, and -J_1 for n = 0 (Abramowitz and Stegun, 9.1.27, 9.1.28)",
    lambda x, order: 0.5 * (F.bessel_first_kind(x, order=order - 1) - F.bessel_first_kind(x, order=order + 1))
    if order else -F.bessel_first_kind(x, order=1),
)  # fmt: skip
