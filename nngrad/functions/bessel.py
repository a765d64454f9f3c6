"""Exponentially scaled modified Bessel functions of the first kind.

With I_n for them, I_n(x) / x^n is an entire function, and its derivative is x I_(n+1)(x) / x^(n+1): so the family
`scaled_bessel_ratio` is closed under differentiation, and nothing in it is singular at 0. Integers are taken as
float32.
"""

from __future__ import annotations

import math
from typing import Annotated

import jax
from jax import lax

from ..graph import Array, op
from ..graph.arguments import between
from .arithmetic import floating, of_floats, widened

_FAR = 18.0
"""Up to here the power series, whose terms are all positive, is summed; beyond, the recurrence in n is stable."""
_TERMS = 52


i0e = of_floats(
    lax.bessel_i0e, "The modified Bessel function of order 0, times `exp(-|x|)`.", name="i0e", wide=True,
    precision="high",
)  # fmt: skip
i1e = of_floats(
    lax.bessel_i1e, "The modified Bessel function of order 1, times `exp(-|x|)`.", name="i1e", wide=True,
    precision="high",
)  # fmt: skip


@op(diagonal=True, precision="high")
def scaled_bessel_ratio(x: Array, /, order: Annotated[int, between(1, 12)]) -> jax.Array:
    """`exp(-|x|) I_n(x) / x^n`, with I_n the modified Bessel function of order n.

    For |x| up to 18 it is the power series (Abramowitz and Stegun, 9.6.10), beyond that I_(n+1) = I_(n-1) - 2 n / x I_n
    (9.6.26).

    Args:
        order: The order n, from 1 to 12.
    """
    x = floating(x)
    size = lax.abs(widened(x))
    bound = lax.full_like(size, _FAR)
    near, far = lax.min(size, bound), lax.max(size, bound)
    quarter, series = near * near / 4, lax.full_like(size, 1)
    for k in range(_TERMS, 0, -1):
        series = 1 + quarter / (k * (k + order)) * series
    series = lax.exp(-near) * series / (2.0**order * math.factorial(order))
    before, recurrent = lax.bessel_i0e(far), lax.bessel_i1e(far)
    for n in range(1, order):
        before, recurrent = recurrent, before - 2 * n / far * recurrent
    value = lax.select(size <= bound, series, recurrent / lax.integer_pow(far, order))
    return lax.convert_element_type(value, x.dtype)
