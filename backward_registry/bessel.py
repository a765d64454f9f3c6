"""Backward rules of Bessel functions."""

import nngrad.functions as F

from .rules import slopes

slopes(F.i0e, "dy/dx = i1e(x) - sign(x) y", lambda x, y: F.i1e(x) - F.signum(x) * y)
slopes(
    F.i1e, "dy/dx = i0e(x) - i1e(x) / x - sign(x) y",
    lambda x, y: F.i0e(x) - F.scaled_bessel_ratio(x, order=1) - F.signum(x) * y,
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
    F.bessel_j, "dy/dx = (J_(n - 1) - J_(n + 1)) / 2, and -J_1 for n = 0 (Abramowitz and Stegun, 9.1.27, 9.1.28)",
    lambda x, order: 0.5 * (F.bessel_j(x, order=order - 1) - F.bessel_j(x, order=order + 1))
    if order else -F.bessel_j(x, order=1),
)  # fmt: skip
