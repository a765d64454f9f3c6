"""Bessel functions of the first kind, modified ones also exponentially scaled.

With I_n for the modified ones, I_n(x) / x^n is an entire function, and its derivative is x I_(n+1)(x) / x^(n+1): so the
families `bessel_ratio` and `scaled_bessel_ratio` are closed under differentiation, and nothing in them is singular at
0. So is the family `bessel_first_kind`, by its recurrence. Integers are taken as float32.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import jax
from jax import lax

from ..graph import Array, Variable, composite, op
from ..graph.arguments import as_int, between, coerced
from ..graph.signatures import explained_by_name
from .arithmetic import floating, mul2, of_floats, widened

_FAR = 18.0
"""Up to here the power series, whose terms are all positive, is summed; beyond, the recurrence in n is stable."""
_TERMS = 52


i0e = of_floats(
    lax.bessel_i0e,
    "The modified Bessel function of order 0, times `exp(-|x|)`.\n\nIts derivatives at 0 are those from above.",
    name="i0e", wide=True, precision="high",
)  # fmt: skip
i1e = of_floats(
    lax.bessel_i1e, "The modified Bessel function of order 1, times `exp(-|x|)`.", name="i1e", wide=True,
    precision="high",
)  # fmt: skip


@op(diagonal=True, precision="high")
def i0e_derivative(x: Array, /, order: Annotated[int, between(1, 24)]) -> jax.Array:
    """The derivative of `i0e` at `|x|`, times (-1)^n for the order n, which is positive.

    It is the mean over t, from 0 to pi, of (1 - cos t)^n exp(-|x| (1 - cos t)) (Abramowitz and Stegun, 9.6.16). For |x|
    up to 30 it is summed at equidistant points, and beyond expanded in 1 / x.

    Args:
        order: The order n of the derivative.
    """
    x = floating(x)
    size = lax.abs(widened(x))
    bound = lax.full_like(size, _MANY)
    near, far = lax.min(size, bound), lax.max(size, bound)
    total = lax.full_like(size, 0)
    for k in range(_POINTS):
        depth = 1 - math.cos(math.pi * (k + 0.5) / _POINTS)
        total = total + depth**order / _POINTS * lax.exp(-depth * near)
    series = lax.full_like(size, 1)
    for j in range(_TERMS_FAR, 0, -1):
        series = 1 + (j - 0.5) * (order + j - 0.5) / (2 * j) / far * series
    scale = math.gamma(order + 0.5) / (math.pi * math.sqrt(2))
    value = lax.select(size <= bound, total, scale * series * lax.rsqrt(far) / lax.integer_pow(far, order))
    return lax.convert_element_type(value, x.dtype)


_MANY = 30.0
_POINTS = 48


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


@op(diagonal=True, unbounded=True, precision="high")
def bessel_ratio(x: Array, /, order: Annotated[int, between(0, 12)]) -> jax.Array:
    """`I_n(x) / x^n`, with I_n the modified Bessel function of order n.

    Args:
        order: The order n, from 0 to 12.
    """
    z = widened(floating(x))
    bound = lax.full_like(z, _OVERFLOWS)
    z = lax.clamp(-bound, z, bound)
    scaled = scaled_bessel_ratio.forward(z, order) if order else lax.bessel_i0e(z)
    half = lax.exp(lax.abs(z) / 2)  # exp(x) overflows before I_n(x) does
    return lax.convert_element_type(half * scaled * half, floating(x).dtype)


_OVERFLOWS = 1e4
"""Beyond this, `bessel_ratio` exceeds all floats."""


@composite
def i0(x: Array, /) -> Variable:
    """The modified Bessel function of order 0."""
    y: Variable = bessel_ratio(x, order=0)
    return y


@composite
def i1(x: Array, /) -> Variable:
    """The modified Bessel function of order 1."""
    return mul2(x, bessel_ratio(x, order=1))


@op(diagonal=True, precision="high")
def bessel_first_kind(x: Array, /, *, order: Annotated[int, between(0, 24)]) -> jax.Array:
    """The Bessel function `bessel_j(order, x)`.

    For |x| up to 25, `J_k(x) k! / (x / 2)^k` is computed downwards in k from where it is nearly 1, which is stable, and
    scaled such that J_0 + 2 J_2 + 2 J_4 + ... = 1 (Abramowitz and Stegun, 9.1.27, 9.1.46, 9.12). Beyond it are J_0
    and J_1 by their expansions in 1 / x (9.2.5), and the recurrence upwards.

    Args:
        order: The order n, from 0 to 24.
    """
    z = widened(floating(x))
    size = lax.abs(z)
    bound = lax.full_like(size, _ASYMPTOTIC)
    near, far = lax.min(size, bound), lax.max(size, bound)
    value = lax.select(size <= bound, _downwards(near, order), _upwards(far, order))
    return lax.convert_element_type(lax.select(z < 0, -value, value) if order % 2 else value, floating(x).dtype)


@explained_by_name
def bessel_j(n: int, x: Array) -> Variable:
    """The Bessel function of the first kind J_n(x), of whole order.

    Args:
        n: The order, from 0 to 24.
        x: Any shape; integers are taken as float32.

    Raises:
        TypeError: `n` is not an int.
        ValueError: `n` is not from 0 to 24.
    """
    return bessel_first_kind(x, order=coerced(as_int, n, "n"))


_ASYMPTOTIC = 25.0
_HIGHEST = 80
"""The order from which the recurrence goes down, which must be even."""
_TERMS_FAR = 24


def _downwards(x: jax.Array, order: int) -> jax.Array:
    half, one = x / 2, lax.full_like(x, 1)

    def lower(i: Any, state: Any) -> Any:
        above, current, total, result = state
        k = lax.convert_element_type(_HIGHEST - i, x.dtype)
        even = lax.convert_element_type(1 - i % 2, x.dtype)
        total = (total + 2 * even * current) * half / k  # Horner's sum of the even ones
        result = lax.select(lax.full(x.shape, _HIGHEST - i == order), current, result)
        return current, current - half * half / (k * (k + 1)) * above, total, result

    _, current, total, result = lax.fori_loop(0, _HIGHEST, lower, (one, one, lax.full_like(x, 0), one))
    power = lax.integer_pow(half, order) / float(math.factorial(order))
    y: jax.Array = power * (result if order else current) / (total + current)
    return y


def _upwards(x: jax.Array, order: int) -> jax.Array:
    sine, cosine, scale = lax.sin(x), lax.cos(x), lax.rsqrt(math.pi * x)
    values = []
    for n, (turned, other) in enumerate([(cosine + sine, sine - cosine), (sine - cosine, -sine - cosine)]):
        even, odd = lax.full_like(x, 0), lax.full_like(x, 0)
        for k in range(_TERMS_FAR, 0, -1):  # Horner's sums of the a_k(n) / x^k of 9.2.9 and 9.2.10
            ratio = (4 * n * n - (2 * k - 1) ** 2) / (8 * k) / x
            even, odd = 1 - ratio * odd, ratio * even
        values.append(scale * (even * turned - odd * other))
    before, y = values
    for n in range(1, order):
        before, y = y, 2 * n / x * y - before
    return y if order else before
