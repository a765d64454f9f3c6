"""Elementwise functions of one Variable: powers, exponentials, trigonometry, rounding.

Integer inputs become float32 where the result is not an integer.
"""

from __future__ import annotations

import math
from typing import Annotated

import jax
import jax.numpy as jnp
from jax import lax

from ..graph import AnyArray, Array, KeptDtype, Variable, composite, op
from ..graph.arguments import Ignored, between
from .arithmetic import (
    broadcast_pair,
    broadcast_scalar,
    floating,
    floating_pair,
    is_floating,
    numeric,
    of_floats,
    widened,
)

# ---------------------------------------------------------------- sign and rounding


@op(elementwise=True, diagonal=True)
def abs(x: KeptDtype, /) -> jax.Array:
    """Absolute value; its derivative at 0 is 1."""
    return lax.abs(x) if jnp.issubdtype(x.dtype, jnp.signedinteger) or is_floating(x) else x


@op(elementwise=True, diagonal=True)
def sign(x: Array, /, alpha: float = 1.0) -> jax.Array:
    """1 where `x` is positive, -1 where it is negative, `alpha` where it is 0. Gradients pass as through the identity.

    Args:
        x: Any shape; an integer `x` becomes float32 if its dtype does not hold `alpha`.
        alpha: The value at 0.
    """
    x, at_zero = broadcast_scalar(x, alpha)
    return lax.select(lax.eq(x, lax.full_like(x, 0)), at_zero, lax.sign(x))


@op(elementwise=True, diagonal=True)
def floor(x: KeptDtype, /) -> jax.Array:
    """`x` rounded down to a whole number. Gradients pass as through the identity."""
    return lax.floor(x) if is_floating(x) else x


@op(elementwise=True, diagonal=True)
def ceil(x: KeptDtype, /) -> jax.Array:
    """`x` rounded up to a whole number. Gradients pass as through the identity."""
    return lax.ceil(x) if is_floating(x) else x


@op(elementwise=True, diagonal=True)
def round(x: KeptDtype, /) -> jax.Array:
    """The nearest whole number; halves round away from zero. Gradients pass as through the identity."""
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO) if is_floating(x) else x


# ---------------------------------------------------------------- powers and exponentials


@op(elementwise=True, diagonal=True, unbounded=True)
def square(x: Array, /) -> jax.Array:
    """`x * x`.

    Args:
        x: Any shape; booleans are taken as float32.
    """
    x = numeric(x)
    return lax.mul(x, x)


@op(elementwise=True, diagonal=True, unbounded=True)
def one_minus_square(x: Array, /) -> jax.Array:
    """`1 - x * x`, computed as `(1 + x) * (1 - x)`, which loses no digits where `|x|` is near 1.

    Args:
        x: Any shape; booleans are taken as float32.
    """
    x = numeric(x)
    one = lax.full_like(x, 1)
    return lax.mul(lax.add(one, x), lax.sub(one, x))


cbrt = of_floats(lax.cbrt, "The cube root, negative where `x` is; its derivative at 0 is infinite.", unbounded=True)
reciprocal = of_floats(lambda x: lax.div(lax.full_like(x, 1), x), "`1 / x`.", name="reciprocal", unbounded=True)
sqrt = of_floats(
    lax.sqrt, "Square root; NaN where `x` is negative, and its derivative at 0 is infinite.", unbounded=True
)
exp = of_floats(lax.exp, "e to the power of `x`.", unbounded=True, precision="high")
log = of_floats(
    lax.log, "Natural logarithm; minus infinity at 0, and NaN where `x` is negative.", unbounded=True, precision="high"
)
erf = of_floats(lax.erf, "The error function: 2/sqrt(pi) times the integral of exp(-t^2) from 0 to `x`.")

# ---------------------------------------------------------------- trigonometry

ANGLES = "\n\nArgs:\n    x: Angles in radians, of any shape; integers are taken as float32."

sin = of_floats(lax.sin, "Sine." + ANGLES)
cos = of_floats(lax.cos, "Cosine." + ANGLES)
tan = of_floats(lax.tan, "Tangent." + ANGLES, unbounded=True, precision="high")
asin = of_floats(
    lax.asin, "The angle in [-pi/2, pi/2] whose sine is `x`; NaN where there is none.", type_name="ASin",
    unbounded=True, precision="high",
)  # fmt: skip
acos = of_floats(
    lax.acos, "The angle in [0, pi] whose cosine is `x`; NaN where there is none.", type_name="ACos", unbounded=True,
    precision="high",
)  # fmt: skip
atan = of_floats(lax.atan, "The angle in [-pi/2, pi/2] whose tangent is `x`.", type_name="ATan")


@op(type_name="ATan2", elementwise=True, diagonal=True, broadcasts=True, unbounded=True)
def atan2(x0: Array, x1: Array, /) -> jax.Array:
    """The angle in [-pi, pi] of the point with abscissa `x1` and ordinate `x0`, broadcast together.

    Where both are 0 there is no derivative; 0 is used.

    Args:
        x0: Ordinates, of any shape; integers are taken as float32.
        x1: Abscissae, of any shape that broadcasts with that of `x0`; integers are taken as float32.
    """
    return lax.atan2(*floating_pair(x0, x1))


@op(elementwise=True, diagonal=True, broadcasts=True, unbounded=True)
def over_square_sum(x0: Array, x1: Array, /) -> jax.Array:
    """`x0 / (x0^2 + x1^2)`, in which no square overflows or underflows; 0 where both are 0 or one is infinite.

    It is the real part of `1 / (x0 + i x1)`.

    Args:
        x0: Any shape; integers are taken as float32.
        x1: Any shape that broadcasts with that of `x0`; integers are taken as float32.
    """
    x0, x1 = broadcast_pair(floating(x0), floating(x1))
    a, b = widened(x0), widened(x1)
    size = lax.max(lax.abs(a), lax.abs(b))
    size = lax.select(lax.eq(size, lax.full_like(size, 0)), lax.full_like(size, 1), size)
    a, b = a / size, b / size
    y = a / lax.max(a * a + b * b, lax.full_like(a, 0.5)) / size  # 1 or more, except where both are 0
    y = lax.select(lax.eq(size, lax.full_like(size, math.inf)), lax.full_like(size, 0), y)
    return lax.convert_element_type(y, x0.dtype)


sinc = of_floats(lambda x: _sinc_derivative(x, 0), "`sin(x) / x`, and 1 at 0: not normalised by pi.", name="sinc")


@op(diagonal=True)
def sinc_derivative(x: Array, /, order: Annotated[int, between(0, 200)] = 1) -> jax.Array:
    """The derivative of `sin(x) / x` of an order from 0 to 200, accurate near 0 too.

    Args:
        order: The order of the derivative; computation time grows in proportion.
    """
    return _sinc_derivative(floating(x), order)


def _sinc_derivative(x: jax.Array, order: int) -> jax.Array:
    """S_n, the n-th derivative of sin(x) / x.

    Differentiating x S_0 = sin x n times gives x S_n + n S_(n-1) = sin(x + n pi/2), which leads from S_0 up and
    from any S_N down. A step up multiplies errors by n / |x|, a step down by |x| / n. So S_n is reached from
    below where |x| > n, and else from above (Miller's algorithm), starting so far up that 0 will do for S_N.
    """
    dtype = x.dtype
    x = widened(x)
    small = lax.le(lax.abs(x), lax.full_like(x, order))
    far = lax.select(small, lax.full_like(x, 1), x)
    far_waves = _sine_derivatives(far)
    result = far_waves[0] / far
    for n in range(1, order + 1):
        result = (far_waves[n % 4] - n * result) / far
    near = lax.select(small, x, lax.full_like(x, 0))
    near_waves = _sine_derivatives(near)
    value = lax.full_like(x, 1 if order == 0 else 0)
    for n in range(3 * order + 22 if order else 0, order, -1):
        value = (near_waves[n % 4] - near * value) / n
    return lax.convert_element_type(lax.select(small, value, result), dtype)


def _sine_derivatives(x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The sine and its first three derivatives; the fourth is the sine again."""
    sine, cosine = lax.sin(x), lax.cos(x)
    return sine, cosine, -sine, -cosine


# ---------------------------------------------------------------- hyperbolic functions

sinh = of_floats(lax.sinh, "Hyperbolic sine, `(exp(x) - exp(-x)) / 2`.", unbounded=True, precision="high")
cosh = of_floats(lax.cosh, "Hyperbolic cosine, `(exp(x) + exp(-x)) / 2`.", unbounded=True, precision="high")
asinh = of_floats(lax.asinh, "The number whose hyperbolic sine is `x`.", type_name="ASinh")
acosh = of_floats(
    lax.acosh, "The number that is not negative and whose hyperbolic cosine is `x`; NaN where there is none.",
    type_name="ACosh", unbounded=True, precision="high",
)  # fmt: skip
atanh = of_floats(
    lax.atanh, "The number whose hyperbolic tangent is `x`; NaN where there is none.", type_name="ATanh",
    unbounded=True, precision="high",
)  # fmt: skip

# ---------------------------------------------------------------- identity


@op(elementwise=True, diagonal=True, linear=True, forwards_inputs=True)
def identity(x: AnyArray, /) -> jax.Array:
    """`x` unchanged."""
    y: jax.Array = x
    return y


@composite
def copy(x: AnyArray, /, dst: Ignored = -1) -> Variable:
    """`x` unchanged, under Chainer's name.

    Args:
        dst: The device in Chainer; ignored, since a graph runs on one device.
    """
    y: Variable = identity(x)
    return y
