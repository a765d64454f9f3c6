"""Quantisers, with the surrogate gradients that networks are trained with.

Their derivatives are 0 almost everywhere, so each has an estimate instead: mostly that of the identity, set to 0
outside the range (straight-through; Bengio, Leonard and Courville, 2013).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..graph import Array, Floats, Variable, composite, op
from ..graph.arguments import DTypeName, Positive, Probability, one_of
from . import array, comparison, control, elementwise, indexing, reduction
from .arithmetic import broadcast_shape, floating, maximum2, minimum2, of_floats, widened
from .moments import accurate

_EXPONENT: dict[np.dtype[Any], Any] = {
    np.dtype(np.float32): np.uint32(0x7F80_0000),
    np.dtype(np.float64): np.uint64(0x7FF0_0000_0000_0000),
}
"""The bits of the exponent, by dtype."""


def _nearest_power(x: jax.Array) -> jax.Array:
    """`x`, float32 or float64 and not negative, rounded to a power of two, up from sqrt(2) times the power below.
    Subnormal numbers become 0; NaN stays."""
    mask = _EXPONENT[np.dtype(x.dtype)]
    below = lax.bitcast_convert_type(lax.bitwise_and(lax.bitcast_convert_type(x, mask.dtype), mask), x.dtype)
    power = lax.select(lax.ge(x, below * x.dtype.type(math.sqrt(2))), below * x.dtype.type(2), below)
    return lax.select(lax.ne(x, x), x, power)


_MOST_BITS = 32
"""The largest number of bits of a code."""
INT8, UINT8 = np.dtype(np.int8), np.dtype(np.uint8)


@op(elementwise=True, diagonal=True, broadcasts=True, reads=1)
def straight_through(y: Array, x: Array, /) -> jax.Array:
    """`y` with the gradient of `x`: the gradient passes to `x`, as if `x` were the result, and not to `y`.

    It can express any estimator: `straight_through(F.sign(x), F.tanh(x))` is the sign with the gradient of tanh.

    Args:
        y: The value, of any shape and dtype.
        x: The Variable that gets the gradient, of the dtype of `y` and a shape that broadcasts with that of `y`.

    Raises:
        TypeError: The dtypes differ.
    """
    if x.dtype != y.dtype:
        raise TypeError(f"x must have the dtype of y, {y.dtype}, got {x.dtype}")
    shape = broadcast_shape(y=y, x=x)
    return y if y.shape == shape else jnp.broadcast_to(y, shape)


def written(y: Variable, values: Mapping[Variable, Variable]) -> Variable:
    """`y`, computed so that each `forward()` writes the new values to those of the Variables that are leaves. The
    gradient bypasses the update, so it also works in the bodies of loops and of `nn.vmap`."""
    updates = {leaf: _stopped(value) for leaf, value in values.items() if leaf.parent is None}
    return straight_through(control.with_updates(_stopped(y), updates), y) if updates else y


def _stopped(y: Variable) -> Variable:
    """`y`, through which no gradient passes."""
    value: Variable = control.unlink(y)
    value.need_grad = False
    return value


# ---------------------------------------------------------------- one bit


binary_sigmoid = of_floats(
    lambda x: lax.convert_element_type(lax.gt(x, lax.full_like(x, 0)), x.dtype),
    "1 where `x > 0`, else 0; its gradient is 1/2 where `|x| < 1`, else 0 (Courbariaux and others, 2016).",
    name="binary_sigmoid",
)
binary_tanh = of_floats(
    lambda x: lax.select(lax.gt(x, lax.full_like(x, 0)), lax.full_like(x, 1), lax.full_like(x, -1)),
    "1 where `x > 0`, else -1; its gradient is 1 where `|x| < 1`, else 0 (Courbariaux and others, 2016).",
    name="binary_tanh",
)


# ---------------------------------------------------------------- several bits


@op(diagonal=True)
def fixed_point_quantize(
    x: Array, /, sign: bool = True, n: int = 8, delta: float = 0.0625, quantize: bool = True,
    ste_fine_grained: bool = True,
) -> jax.Array:
    """`x` rounded to a multiple of `delta`, halves away from zero, within the range of `n` bits.

    The largest value is `delta * (2^(n-1) - 1)`, and the smallest is its negative. Without `sign` they are
    `delta * (2^n - 1)` and 0.

    Args:
        sign: Whether one of the bits is the sign.
        n: Number of bits.
        delta: The step.
        quantize: Whether to quantise; else the result is `x`.
        ste_fine_grained: Whether the gradient passes only where `x` is within the range, ends included; else it passes
            everywhere.

    Raises:
        ValueError: `n` is not from 1 (or 2 with `sign`) to 32, or `delta` is not positive.
    """
    low, high = fixed_point_range(sign, n, delta)
    if not quantize:
        return floating(x)
    dtype, x = floating(x).dtype, widened(floating(x))
    step = lax.full_like(x, delta)
    inside = lax.clamp(x.dtype.type(low), x, x.dtype.type(high))
    return lax.convert_element_type(_rounded(inside / step) * step, dtype)


def fixed_point_range(sign: bool, n: int, delta: float) -> tuple[float, float]:
    """The smallest and the largest number of a fixed-point code."""
    bits = _bits_of_size(n, int(sign), "sign" if sign else "")
    if not (delta > 0 and math.isfinite(delta)):
        raise ValueError(f"delta must be positive, got {delta}")
    high = delta * (2**bits - 1)
    return (-high if sign else 0.0), high


@op(diagonal=True)
def pow2_quantize(
    x: Array, /, sign: bool = True, with_zero: bool = True, n: int = 8, m: int = 1, quantize: bool = True,
    ste_fine_grained: bool = True,
) -> jax.Array:
    """`x` with its magnitude rounded to a power of two between `2^(m - (2^k - 1))` and `2^m`, with k bits.

    Magnitudes are rounded in the logarithm: up from sqrt(2) times a power. k is `n` minus the bits for the sign and for
    0. Magnitudes below the smallest power become that power; with `with_zero`, those below 1/sqrt(2) times it become 0.
    Without `sign`, negative numbers are treated as 0.

    Args:
        with_zero: Whether one of the bits represents 0.
        m: Exponent of the largest power.
        ste_fine_grained: Whether the gradient is 0 where `|x|` would be rounded to more than the largest power, and,
            without `sign`, where `x` is negative; else it passes everywhere.
        ...: As in `fixed_point_quantize`.

    Raises:
        ValueError: `n` leaves no bit for the power or is above 32, or a float cannot hold the largest power.
    """
    low, high = pow2_range(sign, with_zero, n, m)
    if not quantize:
        return floating(x)
    dtype, x = floating(x).dtype, widened(floating(x))
    size = lax.abs(x)
    least, zero, negative = lax.full_like(x, low), lax.full_like(x, 0), lax.lt(x, lax.full_like(x, 0))
    power = lax.clamp(least, _nearest_power(size), lax.full_like(x, high))
    if with_zero:
        power = lax.select(lax.lt(size, lax.full_like(x, low * math.sqrt(0.5))), zero, power)
    y = lax.select(negative, -power if sign else zero if with_zero else least, power)
    return lax.convert_element_type(y, dtype)


def pow2_range(sign: bool, with_zero: bool, n: int, m: int) -> tuple[float, float]:
    """The smallest and the largest power of a power-of-two code."""
    spent = " and ".join([name for name, is_coded in (("sign", sign), ("with_zero", with_zero)) if is_coded])
    bits = _bits_of_size(n, sign + with_zero, spent)
    return math.ldexp(1.0, m - (2**bits - 1)), math.ldexp(1.0, m)


def _bits_of_size(n: int, spent: int, on: str) -> int:
    """The number of bits left of `n` after `spent` bits; `on` names their use in messages."""
    if not spent < n <= _MOST_BITS:
        why = f", including {spent} for {on}" if on else ""
        raise ValueError(f"n must be between {spent + 1} and {_MOST_BITS} bits{why}, got {n}")
    return n - spent


@op
def prune(x: Array, /, rate: Probability = 0.9) -> jax.Array:
    """`x` with its smallest elements set to 0; the gradient passes everywhere.

    Elements are kept if their magnitude is at least the one at index `floor(rate * (count - 1))` in ascending order.

    Args:
        x: Any shape and numeric dtype.
        rate: The share of elements to remove, from 0 to 1; 1 leaves nothing.
    """
    zeros = lax.full_like(x, 0)
    if rate == 1 or x.size == 0:
        return zeros
    sizes = lax.abs(x)
    threshold = lax.sort(lax.reshape(sizes, (x.size,)))[int((x.size - 1) * rate)]
    return lax.select(lax.lt(sizes, lax.broadcast(threshold, x.shape)), zeros, x)


# ---------------------------------------------------------------- ranges


@composite
def min_max_quantize(
    x: Floats, qr_min: Array, qr_max: Array, ql_min: Array, ql_max: Array, /, decay: Probability = 0.999,
    x_min_max: bool = False, ema: bool = False, ste_fine_grained: bool = True, eps: Positive = 0.01,
    quantize: bool = True,
) -> Variable:
    """`x` rounded to evenly spaced levels of a range, one of which is 0 (Jacob and others, 2018).

    The levels `ql_min` to `ql_max` divide the range from `qr_min` to `qr_max` into steps s = (qr_max - qr_min) /
    (ql_max - ql_min). The range is shifted by less than s, or until it reaches 0, so that 0 is a level. The gradient
    passes to `x` where it is within the range, ends included; to `qr_min` where `x` is below, and to `qr_max` where it
    is above.

    With `x_min_max` the range is that of `x` itself, and gets no gradient. Each `forward()` writes it to `qr_min` and
    `qr_max`, if they are leaves.

    Args:
        qr_min: Lower end of the range, of a shape with as many axes as `x`, along each the size of `x` or 1.
        qr_max: Upper end, of the same shape; it is raised to the lower end plus `eps` where it is below that.
        ql_min: The lowest level, a whole number, of the same shape.
        ql_max: The highest level, of the same shape.
        decay: With `x_min_max` and `ema`, the share of the previous range that is kept.
        x_min_max: Whether the range is from the smallest to the largest element of `x`, over the axes where `qr_min`
            has size 1.
        ema: Whether that range is averaged with the values of `qr_min` and `qr_max`. Without `x_min_max` it only keeps
            gradients from the range.
        ste_fine_grained: Whether the gradient to `x` is 0 outside of the range; else it passes everywhere.
        eps: The smallest width of the range; positive.
        quantize: Whether to quantise; else the result is `x`.

    Returns:
        Of the shape and dtype of `x`.

    Raises:
        TypeError: `x` is not floating.
    """
    y: Variable = x
    if not quantize:
        return y
    if not x.spec.differentiable:
        raise TypeError(f"x must have a floating dtype, got {x.dtype.name}")
    shape = qr_min.shape
    for argument, value in (("qr_max", qr_max), ("ql_min", ql_min), ("ql_max", ql_max)):
        if value.shape != shape:
            raise ValueError(f"{argument} must have the shape of qr_min, {shape}, got {value.shape}")
    if len(shape) != x.ndim or any([n not in (1, m) for n, m in zip(shape, x.shape, strict=True)]):
        raise ValueError(f"qr_min must have as many axes as x {x.shape}, each of the same size or 1, got {shape}")
    wide = accurate(x)
    low, high = qr_min, qr_max
    if x_min_max:
        axes = tuple([i for i, n in enumerate(shape) if n == 1])
        low = reduction.amin(wide, axis=axes, keepdims=True) if axes else wide
        high = reduction.amax(wide, axis=axes, keepdims=True) if axes else wide
        if ema:
            low, high = (before * decay + new * (1 - decay) for before, new in ((qr_min, low), (qr_max, high)))
    high = indexing.where(high - low < eps, low + eps, high)
    step = (high - low) / (ql_max - ql_min)
    zero = maximum2(minimum2(elementwise.round(ql_min - low / step), ql_max), ql_min)
    least, largest = (ql_min - zero) * step, (ql_max - zero) * step
    level = elementwise.round((maximum2(minimum2(wide, largest), least) - least) / step) + ql_min
    value = array.cast((level - zero) * step, x.dtype)  # exactly 0 at the level of 0
    through = wide * (comparison.greater_equal(wide, least) * comparison.less_equal(wide, largest))
    through = through if ste_fine_grained else wide
    if not (x_min_max or ema):
        through = through + qr_min * comparison.less(wide, least) + qr_max * comparison.greater(wide, largest)
    y = straight_through(value, array.cast(through, x.dtype))
    return written(y, {qr_min: low, qr_max: high}) if x_min_max else y


# ---------------------------------------------------------------- whole numbers


@op(broadcasts=True, diagonal=True, unbounded=True)
def quantize_linear(
    x: Array, scale: Array, zero_point: Array, /,
    round_mode: Annotated[str, one_of("HALF_AWAY_FROM_ZERO", "HALF_TO_EVEN")] = "HALF_AWAY_FROM_ZERO",
    narrow_range: bool = False, dtype: DTypeName = INT8,
) -> jax.Array:
    """`x / scale`, rounded, plus `zero_point`, within the range of 8 bits.

    Its gradients are those of `x / scale + zero_point`, inside and outside of the range.

    Args:
        scale: Of a shape that broadcasts with that of `x`.
        zero_point: Also of a shape that broadcasts; it is rounded, and clipped to the range.
        round_mode: How halves are rounded: "HALF_AWAY_FROM_ZERO" or "HALF_TO_EVEN".
        narrow_range: Whether to exclude the smallest integer.
        dtype: int8 or uint8, which determines the range. The result stays floating.

    Returns:
        Whole numbers in the common dtype of `x` and `scale`.

    Raises:
        ValueError: The shapes do not broadcast, or `round_mode` or `dtype` is none of the above.
    """
    if dtype not in (INT8, UINT8):
        raise ValueError(f"dtype must be int8 or uint8, got {np.dtype(dtype).name}")
    limits = np.iinfo(dtype)
    result = jnp.promote_types(floating(x).dtype, floating(scale).dtype)
    shape = broadcast_shape(x=x, scale=scale, zero_point=zero_point)
    arrays = (x, scale, zero_point)
    x, scale, zero_point = (lax.convert_element_type(jnp.broadcast_to(a, shape), result) for a in arrays)
    low, high = result.type(limits.min + narrow_range), result.type(limits.max)
    to_even = round_mode == "HALF_TO_EVEN"
    shift = lax.clamp(low, _rounded(zero_point, to_even), high)
    return lax.clamp(low, _rounded(x / scale, to_even) + shift, high)


@composite
def dequantize_linear(x: Array, scale: Array, zero_point: Array, /) -> Variable:
    """`(x - zero_point) * scale`: numbers from their codes. The gradients with respect to all three are exact.

    Args:
        x: The codes, of any shape; whole numbers are taken in the dtype of `scale`.
        scale: Of a shape that broadcasts with that of `x`; floating.
        zero_point: The code of 0, also of a shape that broadcasts.

    Raises:
        TypeError: `scale` is not floating.
    """
    if not scale.spec.differentiable:
        raise TypeError(f"scale must have a floating dtype, got {scale.dtype.name}")
    broadcast_shape(x=x, scale=scale, zero_point=zero_point)
    code, zero = (v if v.spec.differentiable else array.cast(v, scale.dtype) for v in (x, zero_point))
    y: Variable = (code - zero) * scale
    return y


def _rounded(x: jax.Array, to_even: bool = False) -> jax.Array:
    """The nearest whole numbers; halves away from zero, or to even."""
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN if to_even else lax.RoundingMethod.AWAY_FROM_ZERO)
