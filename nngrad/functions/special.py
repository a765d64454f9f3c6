"""Special functions: log and exp near 1, error and gamma functions, and their relatives.

All are elementwise, and differentiable to any order. Integer inputs become float32.
"""

from __future__ import annotations

import math
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ..graph import Array, AsFloats, Variable, op
from ..graph.arguments import between
from ..graph.signatures import explained_by_name
from .arithmetic import broadcast_pair, computed_as, floating, floating_pair, of_floats, widened

# ---------------------------------------------------------------- logarithms, exponentials, roots

log1p = of_floats(
    lax.log1p, "`log(1 + x)`, accurate near 0 too; minus infinity at -1, and NaN below.", unbounded=True,
    precision="high",
)  # fmt: skip
expm1 = of_floats(lax.expm1, "`exp(x) - 1`, accurate near 0 too.", unbounded=True, precision="high")
log2 = of_floats(
    jnp.log2, "Logarithm to base 2; minus infinity at 0, and NaN where `x` is negative.", unbounded=True,
    precision="high",
)  # fmt: skip
log10 = of_floats(
    jnp.log10, "Logarithm to base 10; minus infinity at 0, and NaN where `x` is negative.", unbounded=True,
    precision="high",
)  # fmt: skip
rsqrt = of_floats(
    lax.rsqrt, "`1 / sqrt(x)`; infinite at 0, and NaN where `x` is negative.", unbounded=True, precision="high"
)


@op(elementwise=True, diagonal=True, broadcasts=True, precision="high")
def logaddexp(x0: AsFloats, x1: Array, /) -> jax.Array:
    """`log(exp(x0) + exp(x1))`, computed without overflow.

    Args:
        x1: Any shape that broadcasts with that of `x0`; integers are taken as float32.
    """
    return jnp.logaddexp(*floating_pair(x0, x1))


@op(broadcasts=True, diagonal=True, unbounded=True, precision="high")
def xlogy(x0: AsFloats, x1: Array, /) -> jax.Array:
    """`x0 log(x1)`, and 0 where `x0` is 0."""
    x0, x1 = broadcast_pair(floating(x0), floating(x1))
    zero = lax.full_like(x0, 0)
    return lax.select(lax.eq(x0, zero), zero, x0 * lax.log(x1))


@op(broadcasts=True, diagonal=True, unbounded=True, precision="high")
def xlog1py(x0: AsFloats, x1: Array, /) -> jax.Array:
    """`x0 log(1 + x1)`, accurate where `x1` is small, and 0 where `x0` is 0."""
    x0, x1 = broadcast_pair(floating(x0), floating(x1))
    zero = lax.full_like(x0, 0)
    return lax.select(lax.eq(x0, zero), zero, x0 * lax.log1p(x1))


# ---------------------------------------------------------------- error function

erfc = of_floats(lax.erfc, "`1 - erf(x)`, accurate where that is small.", precision="high")


_FAR = 4.0
"""From here on the continued fraction of `erfcx` is exact to 64 bits in `_TERMS` terms."""
_TERMS = 18


def _scaled_erfc(x: jax.Array) -> jax.Array:
    """`exp(x^2) erfc(x)`; for x of at least 4 by Laplace's continued fraction, 1 / (sqrt(pi) (x + (1/2) / (x + (2/2) /
    (x + (3/2) / (x + ...))))): Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.14."""
    bound = lax.full_like(x, _FAR)
    far, near = lax.max(x, bound), lax.min(x, bound)
    tail = far
    for k in range(_TERMS, 0, -1):
        tail = far + (k / 2) / tail
    return lax.select(x >= bound, 1 / (math.sqrt(math.pi) * tail), lax.exp(near * near) * lax.erfc(near))


erfcx = of_floats(
    _scaled_erfc, "`exp(x^2) erfc(x)`, without underflow where `x` is large.", name="erfcx", unbounded=True,
    precision="high", wide=True,
)  # fmt: skip


@op(diagonal=True, unbounded=True, precision="high")
def erfcx_integral(x: Array, /, order: Annotated[int, between(1, 100)]) -> jax.Array:
    """`exp(x^2)` times the integral of `erfc` from `x` to infinity, repeated `order` times.

    With E_n for it, E_0 for `erfcx` and E_-1 for 2 / sqrt(pi), it is 2 n E_n = E_(n-2) - 2 x E_(n-1) (Abramowitz and
    Stegun, 7.2.5), used upwards for small x, and downwards for the ratios E_n / E_(n-1) beyond.

    Args:
        order: The number n of integrals.
    """
    x = floating(x)
    wide = widened(x)
    # Upwards errors grow as exp(2 sqrt(2 n) x); downwards they shrink likewise, the more slowly the smaller x.
    bound = lax.full_like(wide, 0.7 if wide.dtype.itemsize == 4 else 1.5)
    near, far = lax.min(wide, bound), lax.max(wide, bound)
    before, value = lax.full_like(near, 2 / math.sqrt(math.pi)), _scaled_erfc(near)
    for n in range(1, order + 1):
        before, value = value, (before - 2 * near * value) / (2 * n)
    highest = order + _RATIOS
    ratio, product = 1 / (far + lax.sqrt(far * far + 2 * highest)), _scaled_erfc(far)
    for n in range(highest, 0, -1):
        ratio = 1 / (2 * far + 2 * (n + 1) * ratio)
        product = product * ratio if n <= order else product
    return lax.convert_element_type(lax.select(wide > bound, product, value), x.dtype)


_RATIOS = 60
"""The number of ratios after which nothing is left of the first, an estimate."""

erfinv = of_floats(
    lax.erf_inv, "The number whose error function is `x`; infinite at -1 and 1, and NaN beyond.", name="erfinv",
    unbounded=True, precision="high",
)  # fmt: skip
erfcinv = of_floats(
    lambda x: jax.scipy.special.ndtri(x / 2) * -math.sqrt(0.5),
    "The number `y` with `erfc(y) = x`, accurate where `x` is small; infinite at 0 and 2, and NaN beyond.",
    name="erfcinv", unbounded=True, precision="high", wide=True,
)  # fmt: skip
ndtr = of_floats(
    jax.scipy.special.ndtr, "The probability that a standard normal number is not above `x`.", name="ndtr",
    precision="high", wide=True,
)  # fmt: skip
ndtri = of_floats(
    jax.scipy.special.ndtri,
    "The number that a standard normal one does not exceed with probability `x`; infinite at 0 and 1, NaN beyond.",
    name="ndtri", unbounded=True, precision="high", wide=True,
)  # fmt: skip


def _log_ndtr(x: jax.Array) -> jax.Array:
    zero, scaled = lax.full_like(x, 0), math.sqrt(0.5) * x
    above = lax.log1p(-0.5 * lax.erfc(lax.max(scaled, zero)))
    below = lax.min(scaled, zero)
    return lax.select(x > zero, above, lax.log(0.5 * _scaled_erfc(-below)) - below * below)


log_ndtr = of_floats(
    _log_ndtr, "The logarithm of `ndtr(x)`, without underflow where `x` is far below 0.", name="log_ndtr",
    unbounded=True, precision="high", wide=True,
)  # fmt: skip


# ---------------------------------------------------------------- gamma function

lgamma = of_floats(
    lax.lgamma, "The logarithm of the absolute value of the gamma function; infinite at 0, -1, -2, ...", unbounded=True,
    precision="high",
)  # fmt: skip
digamma = of_floats(
    lambda x: lax.select(lax.eq(x, lax.full_like(x, 0)), -1 / x, lax.digamma(x)),
    "The derivative of `lgamma`; infinite at 0, and NaN at -1, -2, ...", name="digamma", unbounded=True,
    precision="high",
)  # fmt: skip


@op(elementwise=True, diagonal=True, broadcasts=True, unbounded=True, precision="high")
def betaln(x0: AsFloats, x1: Array, /) -> jax.Array:
    """The logarithm of the beta function: `lgamma(x0) + lgamma(x1) - lgamma(x0 + x1)`, also for large arguments.

    Args:
        x0: Any shape, positive.
        x1: Positive, of a shape that broadcasts with that of `x0`.
    """
    x0, x1 = broadcast_pair(floating(x0), floating(x1))
    a, b = widened(x0), widened(x1)
    direct = lax.lgamma(a) + lax.lgamma(b) - lax.lgamma(a + b)
    # In the logarithms of gamma functions, large terms cancel; in Stirling's formula, they meet in log1p.
    inside = (a > 0) & (b > 0)
    p, q = (lax.select(inside, z, lax.full_like(z, 1)) for z in (a, b))
    rest = stirling_error(p) + stirling_error(q) - stirling_error(p + q)
    value = rest + (math.log(2 * math.pi) + lax.log(1 / p + 1 / q)) / 2 - p * lax.log1p(q / p) - q * lax.log1p(p / q)
    return lax.convert_element_type(computed_as(direct, lax.select(inside, value, direct)), x0.dtype)


def stirling_error(z: jax.Array) -> jax.Array:
    """`lgamma(z)` less Stirling's formula (Abramowitz and Stegun, 6.1.41)."""
    large, small = lax.max(z, lax.full_like(z, 10)), lax.min(z, lax.full_like(z, 10))
    square = 1 / (large * large)
    series = 1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square * (1 / 1188 - square * 691 / 360360)))
    direct = lax.lgamma(small) - (small - 0.5) * lax.log(small) + small - 0.5 * math.log(2 * math.pi)
    return lax.select(z > 10, (1 / 12 - square * series) / large, direct)


def _zeta(q: jax.Array, *, x: float) -> jax.Array:
    # JAX gives NaN at infinity.
    return lax.select(lax.eq(q, lax.full_like(q, np.inf)), lax.full_like(q, 0), lax.zeta(lax.full_like(q, x), q))


_ZETA = Primitive("hurwitz_zeta")
"""Hurwitz's zeta function with a derivative, which JAX lacks, for when JAX differentiates the emitted function. Not a
`custom_jvp`: JAX loses such rules when it differentiates a loop twice."""
_ZETA.def_impl(jax.jit(_zeta, static_argnames="x"))
_ZETA.def_abstract_eval(lambda q, **_: q)
ad.defjvp(_ZETA, lambda along, q, *, x: -x * _ZETA.bind(q, x=x + 1) * along)
batching.defvectorized(_ZETA)
mlir.register_lowering(_ZETA, mlir.lower_fun(_zeta, multiple_results=False))


@op(diagonal=True, unbounded=True, precision="high")
def digamma_derivative(x: Array, /, order: Annotated[int, between(1, 100)]) -> jax.Array:
    """The derivative of `digamma`, of an order from 1 to 100.

    With n for the order, it is (-1)^(n + 1) n! zeta(n + 1, x) where `x` is positive, and follows elsewhere from
    psi(1 - x) - psi(x) = pi cot(pi x), differentiated n times (Abramowitz and Stegun, 6.4.7 and 6.4.10).

    Args:
        order: The number of derivatives of `digamma`.
    """
    x = floating(x)
    wide = widened(x)
    is_positive = wide > 0
    mirrored = lax.select(is_positive, wide, 1 - wide)
    sign = -1.0 if order % 2 == 0 else 1.0
    value = sign * math.factorial(order) * _ZETA.bind(mirrored, x=order + 1)
    cotangent = 1 / lax.tan(math.pi * lax.select(is_positive, lax.full_like(wide, 0.25), wide - lax.round(wide)))
    below = -sign * value - math.pi * _polynomial(_cotangent_derivative(order), cotangent)
    return lax.convert_element_type(lax.select(is_positive, value, below), x.dtype)


@op(diagonal=True, broadcasts=True, unbounded=True, precision="high")
def digamma_difference(x0: AsFloats, x1: Array, /, order: Annotated[int, between(0, 100)] = 0) -> jax.Array:
    """`digamma(x0 + x1) - digamma(x0)`, or the difference of a derivative of `digamma`, without cancellation.

    Where `x0` and `x0 + x1` are positive, it is the sum of the differences of the terms of the recurrence up to n + 12
    for the order n, and of the asymptotic series from there on (Abramowitz and Stegun, 6.4.6 and 6.4.11).

    Args:
        x0: Any shape; integers are taken as float32.
        x1: The distance, of a shape that broadcasts with that of `x0`; integers are taken as float32.
        order: The order of the derivative, from 0 to 100.
    """
    x0, x1 = broadcast_pair(floating(x0), floating(x1))
    a, b = widened(x0), widened(x1)
    inside = (a > 0) & (a + b > 0)
    direct = [digamma.forward(z) if order == 0 else digamma_derivative.forward(z, order=order) for z in (a + b, a)]
    p, q = (lax.select(inside, argument, lax.full_like(argument, 1)) for argument in (a, b))
    # Terms c (z^-m - (z + q)^-m) with z = p + k, as (c, k, m): those of the recurrence, then those of the series.
    n, factorial = order, math.factorial
    terms = [(factorial(n), k, n + 1) for k in range(n + 12)] + [(factorial(n) / 2, n + 12, n + 1)]
    terms += [(b * factorial(2 * k + n - 1) / factorial(2 * k), n + 12, 2 * k + n) for k, b in _BERNOULLI.items()]
    terms += [(factorial(n - 1), n + 12, n)] if n else []
    with np.errstate(over="ignore"):
        factors, shifts, powers = np.array(terms, p.dtype).T
    z = lax.expand_dims(p, (p.ndim,)) + shifts
    shares = -lax.expm1(-powers * lax.log1p(lax.expand_dims(q, (q.ndim,)) / z))
    total = jnp.sum(factors * shares * z**-powers, axis=-1)
    if n == 0:
        total += lax.log1p(q / (p + 12))
    value = lax.select(inside, -total if order % 2 else total, direct[0] - direct[1])
    return lax.convert_element_type(value, x0.dtype)


_BERNOULLI = dict(enumerate((1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798), 1))
"""Bernoulli's numbers B_2k, by k."""


def _cotangent_derivative(order: int) -> list[float]:
    """The coefficients, constant first, of the derivative of cot(pi x) of this order, as a polynomial in cot(pi x)."""
    coefficients = [0.0, 1.0]
    for _ in range(order):  # c' = -pi (1 + c^2) for c = cot(pi x)
        slopes = [-math.pi * k * a for k, a in enumerate(coefficients)][1:]
        coefficients = [a + b for a, b in zip([*slopes, 0.0, 0.0], [0.0, 0.0, *slopes], strict=True)]
    return coefficients


def _polynomial(coefficients: list[float], x: jax.Array) -> jax.Array:
    """The value of a polynomial, by Horner's rule."""
    value = lax.full_like(x, coefficients[-1])
    for a in reversed(coefficients[:-1]):
        value = value * x + a
    return value


@explained_by_name
def polygamma(n: int, x: Variable) -> Variable:
    """The derivative of `digamma` of order `n`; `digamma` itself for 0.

    Args:
        n: The order, from 0 to 100.
        x: Any shape; integers are taken as float32.

    Raises:
        TypeError: `n` is not an int.
        ValueError: `n` is not from 0 to 100.
    """
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"polygamma: n must be an int, the same for all elements, got {n!r}")
    if not 0 <= n <= 100:
        raise ValueError(f"polygamma: n must be between 0 and 100, got {n}")
    return digamma(x) if n == 0 else digamma_derivative(x, order=n)


@op(diagonal=True, unbounded=True, precision="high")
def hurwitz_zeta(q: Array, /, *, x: float) -> jax.Array:
    """The sum of `(k + q)^-x` over k = 0, 1, 2, ..., which `zeta(x, q)` is.

    Args:
        q: Any shape, positive; integers are taken as float32.
        x: The exponent, above 1.

    Raises:
        ValueError: The exponent is not above 1.
    """
    if not x > 1:
        raise ValueError(f"x must be above 1, where the sum converges, got {x}")
    q = floating(q)
    wide = widened(q)
    return lax.convert_element_type(_ZETA.bind(wide, x=x), q.dtype)


@explained_by_name
def zeta(x: float, q: Variable) -> Variable:
    """The Hurwitz zeta function: the sum of `(k + q)^-x` over k = 0, 1, 2, ...

    It is differentiable with respect to `q`; for `x` there is no closed form.

    Args:
        x: The exponent, a number above 1.
        q: Any shape, positive; integers are taken as float32.

    Raises:
        TypeError: `x` is not a number.
        ValueError: `x` is not above 1.
    """
    if isinstance(x, Variable):
        raise TypeError("zeta: x must be a number, got a Variable: there is no derivative with respect to the exponent")
    return hurwitz_zeta(q, x=x)
