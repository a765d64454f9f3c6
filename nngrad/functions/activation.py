"""Activation functions. Integer inputs become float32, except in `relu` and `relu6`, which keep them."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from ..graph import Array, AsFloats, Variable, WithAxis, composite, op
from ..graph.arguments import Ignored, Scalar
from ..graph.axes import AxisMap
from . import movement
from .arithmetic import alike, broadcast_pair, broadcast_scalar, computed_as, floating, mul_scalar, of_floats, widened
from .axes import axis_of, mixes
from .axis_maps import base_axis_leading

GELU_SCALE = math.sqrt(2 / math.pi)
GELU_CUBIC = 0.044715
"""`gelu(x) = x/2 (1 + tanh(GELU_SCALE (x + GELU_CUBIC x^3)))`."""
GELU_END = 22.0
"""From here on the distance of the tanh from 1 is 0 in every dtype."""


# ---------------------------------------------------------------- piecewise linear


@op(type_name="ReLU", elementwise=True, diagonal=True)
def relu(x: Array, /, inplace: Ignored = False) -> jax.Array:
    """`max(x, 0)`; its derivative at 0 is 0.

    Args:
        x: Any shape; integers stay integers.
    """
    return lax.max(*broadcast_scalar(x, 0.0))


@op(
    type_name="LeakyReLU", elementwise=True, diagonal=True,
    of_variables=lambda x, alpha: alpha * x + (1 - alpha) * relu(x),
)  # fmt: skip
def leaky_relu(x: Array, /, alpha: Scalar = 0.1, inplace: Ignored = False) -> jax.Array:
    """`x` where it is positive, else `alpha * x`; its derivative at 0 is `alpha`.

    Args:
        alpha: The slope below 0.
    """
    x = floating(x)
    return lax.select(lax.gt(x, lax.full_like(x, 0)), x, x * alpha)


_SLOPES = AxisMap(
    places=lambda f: (tuple(range(f.inputs[0].ndim)), (None,) * f.inputs[1].ndim), leading=base_axis_leading,
    inputs=(0,),
)  # fmt: skip


@op(type_name="PReLU", axes=_SLOPES, fuses="in place")
def prelu(x0: AsFloats, x1: Array, /, base_axis: int = 1) -> jax.Array:
    """`x0` where it is not negative, else `x1 * x0`; its derivative at 0 is 1 (He et al., 2015).

    Args:
        x1: The slopes below 0: one element, or `(channels,)`, one for each channel of `x0`.
        base_axis: The axis of the channels in `x0`.
    """
    dtype = jnp.promote_types(floating(x0).dtype, floating(x1).dtype)
    x0, x1 = lax.convert_element_type(x0, dtype), lax.convert_element_type(x1, dtype)
    slope = jnp.broadcast_to(jnp.reshape(x1, slope_shape(x0, x1, base_axis)), x0.shape)
    return lax.select(lax.ge(x0, lax.full_like(x0, 0)), x0, slope * x0)


def slope_shape(x0: jax.Array | Variable, x1: jax.Array | Variable, base_axis: int) -> tuple[int, ...]:
    """The shape in which `prelu`'s slopes `x1` broadcast against `x0`."""
    if not x1.shape or x1.shape == (1,):
        return (1,) * len(x0.shape)
    axis = axis_of(base_axis, len(x0.shape), "base_axis")
    if x1.shape != (x0.shape[axis],):
        raise ValueError(f"x1 must have one element, or {x0.shape[axis]} as x0 has along base_axis {base_axis}, got "
                         f"shape {x1.shape}")
    return tuple(n if i == axis else 1 for i, n in enumerate(x0.shape))


@op(type_name="ReLU6", elementwise=True, diagonal=True)
def relu6(x: Array, /) -> jax.Array:
    """`min(max(x, 0), 6)`; its derivative at 0 and 6 is 0.

    Args:
        x: Any shape; integers stay integers.
    """
    x, six = broadcast_scalar(x, 6.0)
    return lax.min(lax.max(x, lax.full_like(x, 0)), six)


hard_sigmoid = of_floats(
    lambda x: lax.min(lax.max(x * 0.2 + 0.5, lax.full_like(x, 0)), lax.full_like(x, 1)),
    "`min(max(0.2 x + 0.5, 0), 1)`; its derivative at both kinks is 0.", name="hard_sigmoid",
)  # fmt: skip
hard_tanh = of_floats(
    lambda x: lax.min(lax.max(x, lax.full_like(x, -1)), lax.full_like(x, 1)),
    "`min(max(x, -1), 1)`; its derivative at -1 and 1 is 1.", name="hard_tanh",
)  # fmt: skip


@composite
def crelu(x: WithAxis, /, axis: int = 1) -> Variable:
    """Concatenated ReLU: `relu(x)` and `relu(-x)`, joined along `axis` (Shang et al., 2016).

    Args:
        axis: The axis that becomes twice as long.
    """
    return _both_signs(relu, x, axis)


def _both_signs(function: Callable[[Variable], Variable], x: Variable, axis: int) -> Variable:
    """`function` of `x` and of `-x`, concatenated along `axis`."""
    axis = axis_of(axis, x.ndim, "axis")
    return movement.concatenate(function(x), function(mul_scalar(x, val=-1.0)), axis=axis)


# ---------------------------------------------------------------- exponential below 0


def _elu(x: Variable, alpha: Variable) -> Variable:
    y = elu(x)
    return y + (1 - alpha) * relu(-y)  # the derivative at 0 is 1


@op(type_name="ELU", elementwise=True, diagonal=True, of_variables=_elu)
def elu(x: Array, /, alpha: Scalar = 1.0) -> jax.Array:
    """`x` where it is not negative, else `alpha * (exp(x) - 1)`; its derivative at 0 is 1 (Clevert et al., 2016).

    Args:
        alpha: Minus the limit as x goes to minus infinity.
    """
    x = floating(x)
    zeros = lax.full_like(x, 0)
    return lax.select(lax.ge(x, zeros), x, lax.expm1(lax.min(x, zeros)) * alpha)


@op(
    type_name="SELU", elementwise=True, diagonal=True,
    of_variables=lambda x, scale, alpha: scale * (alpha * elu(x) + (1 - alpha) * relu(x)),
)  # fmt: skip
def selu(x: Array, /, scale: Scalar = 1.05070098735548, alpha: Scalar = 1.673263242354377) -> jax.Array:
    """`scale * x` where it is positive, else `scale * alpha * (exp(x) - 1)` (Klambauer et al., 2017).

    Its derivative at 0 is `scale * alpha`. With the defaults mean 0 and variance 1 are a fixed point of wide layers.

    Args:
        scale: The slope above 0.
        alpha: `scale * alpha` is minus the limit far below 0.
    """
    x = floating(x)
    zeros = lax.full_like(x, 0)
    return lax.select(lax.gt(x, zeros), x * scale, lax.expm1(lax.min(x, zeros)) * (scale * alpha))


@composite
def celu(x: Array, /, alpha: Scalar = 1.0, axis: int = 1) -> Variable:
    """Concatenated ELU: `elu(x)` and `elu(-x)`, joined along `axis`.

    Args:
        x: Any shape of at least one axis; integers are taken as float32.
        alpha: That of `elu`.
        axis: The axis that becomes twice as long.
    """
    return _both_signs(lambda z: elu(z, alpha=alpha), x, axis)


# ---------------------------------------------------------------- sigmoids

sigmoid = of_floats(lax.logistic, "`1 / (1 + exp(-x))`.", name="sigmoid")


@op(elementwise=True, diagonal=True, broadcasts=True)
def sigmoid_complement(s: Array, x: Array, /) -> jax.Array:
    """`1 - s` for `s = sigmoid(x)`, computed from `x`, so that it is right where `s` is rounded to 1.

    Its derivatives are those of `1 - s`: nothing passes to `x`.

    Args:
        s: The sigmoid of `x`.
        x: Any shape that broadcasts with that of `s`.
    """
    s, x = broadcast_pair(floating(s), floating(x))
    y = 1 - s
    return computed_as(y, lax.select(lax.gt(x, lax.full_like(x, 0)), lax.exp(-x) * s, y))


log_sigmoid = of_floats(
    lambda x: -_softplus(-x), "`log(sigmoid(x))`, computed without overflow.", name="log_sigmoid", precision="high"
)


def _softplus_of_variables(x: Variable, beta: Variable) -> Variable:
    return softplus(beta * x) / beta


@op(type_name="SoftPlus", diagonal=True, of_variables=_softplus_of_variables)
def softplus(x: Array, /, beta: Scalar = 1.0) -> jax.Array:
    """`log(1 + exp(beta * x)) / beta`, computed without overflow.

    Args:
        beta: The sharpness of the bend at 0; not 0.

    Raises:
        ValueError: `beta` is 0.
    """
    if beta == 0:
        raise ValueError("beta must not be 0")
    x = floating(x)
    return _softplus(x) if beta == 1 else _softplus(x * beta) / beta


tanh = of_floats(lax.tanh, "Hyperbolic tangent.")


@op(elementwise=True, diagonal=True, broadcasts=True)
def tanh_slope(t: Array, x: Array, /) -> jax.Array:
    """`1 - t * t` for `t = tanh(x)`, computed from `x`, so that it is right where `t` is rounded to 1 or -1.

    Its derivatives are those of `1 - t * t`: nothing passes to `x`.

    Args:
        t: The hyperbolic tangent of `x`.
        x: Any shape that broadcasts with that of `t`.
    """
    t, x = broadcast_pair(floating(t), floating(x))
    # With e = exp(-2 |x|) it is 4 e / (1 + e)^2, and |t| = (1 - e) / (1 + e), hence 1 + |t| = 2 / (1 + e).
    return computed_as(1 - t * t, lax.exp(-2 * lax.abs(x)) * lax.square(1 + lax.abs(t)))


tanh_shrink = of_floats(lambda x: x - lax.tanh(x), "`x - tanh(x)`.", name="tanh_shrink")
softsign = of_floats(lambda x: x / (1 + lax.abs(x)), "`x / (1 + |x|)`.", name="softsign", type_name="SoftSign")
swish = of_floats(
    lambda x: x * lax.logistic(x), "`x * sigmoid(x)` (Ramachandran et al., 2017), also called SiLU.", name="swish"
)


@op(type_name="GELU", elementwise=True, diagonal=True)
def gelu(x: Array, /) -> jax.Array:
    """`x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`, the Gaussian error linear unit in its tanh form.

    The approximation of `x` times the normal distribution function is that of Hendrycks and Gimpel (2016).
    """
    x = floating(x)
    # (1 + tanh(u)) / 2 = sigmoid(2 u), which is accurate where tanh(u) is rounded to -1.
    y: jax.Array = x * lax.logistic(2 * GELU_SCALE * (x + GELU_CUBIC * (x * x * x)))
    return y


mish = of_floats(lambda x: x * lax.tanh(_softplus(x)), "`x * tanh(softplus(x))` (Misra, 2019).", name="mish")


def _softplus(x: jax.Array) -> jax.Array:
    """log(1 + exp(x)), computed with an exponential of -|x|, which cannot overflow."""
    return lax.max(x, lax.full_like(x, 0)) + lax.log1p(lax.exp(-lax.abs(x)))


# ---------------------------------------------------------------- along an axis


@op(axes=mixes("axis", none=-1), fuses="in place", precision="inside")
def softmax(x: Array, /, axis: int | None = None) -> jax.Array:
    """`exp(x) / sum(exp(x))` along `axis`, computed without overflow.

    Args:
        x: Any shape of at least one axis; integers are taken as float32.
        axis: The axis whose elements sum to 1; by default the last.
    """
    shifted, axes = _shifted(x, axis)
    e = lax.exp(shifted)
    return e / lax.expand_dims(lax.reduce_sum(e, axes), axes)


@op(axes=mixes("axis", none=-1), fuses="in place", precision="high")
def log_softmax(x: Array, /, axis: int | None = None) -> jax.Array:
    """`log(softmax(x))` along `axis`, computed without overflow.

    Args:
        x: Any shape of at least one axis; integers are taken as float32.
        axis: The axis along which the softmax sums; by default the last.
    """
    shifted, axes = _shifted(x, axis)
    return shifted - lax.expand_dims(lax.log(lax.reduce_sum(lax.exp(shifted), axes)), axes)


@op(axes=mixes("axis", none=-1), linear=True, fuses="in place", precision="inside")
def less_share(x: Array, p: Array, /, axis: int | None = None) -> jax.Array:
    """`x - p sum(x)` along `axis`, for shares `p` whose sum is 1: what is left of `x` when each takes its share.

    It is applied twice, which changes nothing but rounding: so it is right where a share is rounded to 1.

    Args:
        x: Any shape of at least one axis.
        p: Shares, of the shape of `x`.
        axis: The axis along which the shares sum to 1; by default the last.
    """
    return _twice(lambda x, p, total: x - p * total(x), x, p, axis)


@op(axes=mixes("axis", none=-1), linear=True, fuses="in place", precision="inside")
def less_mean(x: Array, p: Array, /, axis: int | None = None) -> jax.Array:
    """`x - sum(p x)` along `axis`, for weights `p` whose sum is 1: deviations from the mean.

    It is applied twice, which changes nothing but rounding: so it is right where a weight is rounded to 1.

    Args:
        x: Any shape of at least one axis.
        p: Weights, of the shape of `x`.
        axis: The axis along which the weights sum to 1; by default the last.
    """
    return _twice(lambda x, p, total: x - total(p * x), x, p, axis)


def _twice(project: Callable[..., jax.Array], x: jax.Array, p: jax.Array, axis: int | None) -> jax.Array:
    """A projection along an axis with the weights `p`, applied twice, with the derivatives of applying it once."""
    x, p = alike(floating(x), floating(p))
    axes = (axis_of(-1 if axis is None else axis, x.ndim),)

    def total(x: jax.Array) -> jax.Array:
        return lax.expand_dims(lax.reduce_sum(x, axes), axes)

    wide, weights = widened(x), widened(p)
    once = project(wide, weights, total)
    return lax.convert_element_type(computed_as(once, project(once, weights, total)), x.dtype)


def _shifted(x: jax.Array, axis: int | None) -> tuple[jax.Array, tuple[int]]:
    """`x` less its maximum along `axis`, and the axis, not negative, in a tuple."""
    axes = (axis_of(-1 if axis is None else axis, x.ndim),)
    x = floating(x)
    return x - lax.expand_dims(lax.reduce_max(x, axes), axes), axes
