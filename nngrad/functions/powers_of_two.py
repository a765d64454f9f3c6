"""Rounding to powers of two, exactly: by the bits of floating numbers, and not by logarithms."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax

_EXPONENT: dict[np.dtype[Any], Any] = {
    np.dtype(np.float32): np.uint32(0x7F80_0000),
    np.dtype(np.float64): np.uint64(0x7FF0_0000_0000_0000),
}
"""The bits of the exponent, by dtype."""


def nearest_power(x: jax.Array, threshold: float) -> jax.Array:
    """`x`, which is not negative, rounded to a power of two: up from `threshold` times a power on. What is not a normal
    number becomes 0; NaN stays.

    Args:
        x: float32 or float64.
        threshold: From 1 to 2: 1.5 rounds to the nearest one, sqrt(2) to the nearest one in the logarithm.
    """
    mask = _EXPONENT[np.dtype(x.dtype)]
    below = lax.bitcast_convert_type(lax.bitwise_and(lax.bitcast_convert_type(x, mask.dtype), mask), x.dtype)
    power = lax.select(lax.ge(x, below * x.dtype.type(threshold)), below * x.dtype.type(2), below)
    return lax.select(lax.ne(x, x), x, power)
