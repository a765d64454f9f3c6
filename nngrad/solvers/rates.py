"""Checks of the numbers that solvers are given. Their messages start with the `name` of the argument."""

from __future__ import annotations

import math
from typing import Any


def as_real(value: Any, name: str) -> float:
    """`value` as a float."""
    try:
        if not isinstance(value, bool):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"{name}: expected a number, got {value!r}")


def as_rate(value: Any, name: str) -> float:
    """`value` as a float that is finite and not negative."""
    rate = as_real(value, name)
    if not 0 <= rate < math.inf:
        raise ValueError(f"{name}: must be finite and not negative, got {value!r}")
    return rate


def as_decay(value: Any, name: str) -> float:
    """`value` as a float from 0 to below 1: the share of an average that is kept at each step."""
    rate = as_real(value, name)
    if not 0 <= rate < 1:
        raise ValueError(f"{name}: must be at least 0 and less than 1, got {value!r}")
    return rate


def as_power_of_two(value: Any, name: str) -> float:
    """`value` as a float that is a power of two, and normal in float32."""
    power = as_real(value, name)
    if not _SMALLEST <= power <= _LARGEST or math.frexp(power)[0] != 0.5:
        raise ValueError(f"{name}: must be a power of two from 2^-126 to 2^127, such as 1024, got {value!r}")
    return power


_SMALLEST, _LARGEST = 2.0**-126, 2.0**127
