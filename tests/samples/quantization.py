"""Samples of quantisers. The references have the estimate as their derivative, which differences cannot show."""

import jax.numpy as jnp
import numpy as np
from jax import lax

from . import fixed, real, sample, whole


def estimated(value, proxy):
    """`value` with the derivatives of `proxy`."""
    return proxy + lax.stop_gradient(value - proxy)


def half_away(x):
    """`x` rounded, halves away from zero."""
    return jnp.sign(x) * jnp.floor(jnp.abs(x) + 0.5)


def fixed_point(x, bits, delta, lowest):
    """Fixed-point numbers, cut off at both ends."""
    high = (2**bits - 1) * delta
    inside = jnp.clip(x, lowest * high, high)
    return estimated(half_away(inside / delta) * delta, inside)


def pow2(x, bits, m, zero, sign):
    """Powers of two, by logarithms."""
    high, low = 2.0**m, 2.0 ** (m - (2**bits - 1))
    exponent = jnp.round(jnp.log2(jnp.where(x == 0, 1e-30, jnp.abs(x))))
    q = jnp.clip(2.0**exponent, low, high)
    q = jnp.where(2.0**exponent < low, 0.0 if zero else low, q)
    q = jnp.where(x < 0, -q if sign else 0.0 if zero else low, q)
    passing = (2.0**exponent <= high) & ((x >= 0) | sign)
    return estimated(q, jnp.where(passing, x, 0.0))


def ranged(x, low, high, levels_low, levels_high, trained=True, fine=True):
    """Levels that are spread evenly over a range, one of which is 0."""
    step = (high - low) / (levels_high - levels_low)
    zero = jnp.clip(half_away(levels_low - low / step), levels_low, levels_high)
    least, largest = lax.stop_gradient((levels_low - zero) * step), lax.stop_gradient((levels_high - zero) * step)
    value = half_away((jnp.clip(x, least, largest) - least) / step) * step + least
    proxy = jnp.where((x >= least) & (x <= largest), x, 0.0) if fine else x
    if trained:
        proxy = proxy + jnp.where(x < least, low, 0.0) + jnp.where(x > largest, high, 0.0)
    return estimated(value, proxy)


def linear(x, scale, zero_point, low, high, rounded=half_away):
    """Whole numbers within a range."""
    value = jnp.clip(rounded(x / scale) + jnp.clip(rounded(zero_point), low, high), low, high)
    return estimated(value, x / scale + zero_point)


RANGE = (fixed(-0.8), fixed(1.1), fixed(0.0), fixed(15.0))
CHANNELS = (fixed([-0.8, -0.2]), fixed([1.1, 0.9]), fixed([0.0, 0.0]), fixed([15.0, 15.0]))

SAMPLES = [
    sample("straight_through", real(2, 3), real(2, 3), ref=estimated, numeric=False),
    sample("binary_sigmoid", real(2, 3), numeric=False,
           ref=lambda x: estimated(1.0 * (x > 0), jnp.clip(0.5 * x, -0.5, 0.5))),
    sample("binary_tanh", real(2, 3), numeric=False,
           ref=lambda x: estimated(jnp.where(x > 0, 1.0, -1.0), jnp.clip(x, -1.0, 1.0))),
    sample("fixed_point_quantize", real(2, 4), n=4, delta=0.15, numeric=False,
           ref=lambda x: fixed_point(x, 3, 0.15, -1)),
    sample("fixed_point_quantize", real(2, 4), sign=False, n=2, delta=0.25, ste_fine_grained=False, numeric=False,
           ref=lambda x: estimated(fixed_point(x, 2, 0.25, 0), x)),
    sample("fixed_point_quantize", real(2, 4), n=4, delta=0.15, quantize=False, numeric=False, ref=lambda x: x),
    sample("min_max_quantize", real(6), *RANGE, ref=ranged, numeric=False),
    sample("min_max_quantize", real(3, 2), *CHANNELS, ste_fine_grained=False, numeric=False,
           ref=lambda *xs: ranged(*xs, fine=False)),
    sample("min_max_quantize", real(6), *RANGE, x_min_max=True, ema=True, decay=0.75, numeric=False,
           ref=lambda x, low, high, *levels: ranged(
               x, *(lax.stop_gradient(0.75 * a + 0.25 * b) for a, b in ((low, x.min()), (high, x.max()))), *levels,
               trained=False)),
    sample("pow2_quantize", real(2, 4), n=4, m=0, ref=lambda x: pow2(x, 2, 0, True, True), numeric=False),
    sample("pow2_quantize", real(2, 4), sign=False, with_zero=False, n=2, m=-1, numeric=False,
           ref=lambda x: pow2(x, 2, -1, False, False)),
    sample("pow2_quantize", real(2, 4), n=4, m=0, quantize=False, ref=lambda x: x, numeric=False),
    sample("pow2_quantize", real(2, 4), n=4, m=0, ste_fine_grained=False, numeric=False,
           ref=lambda x: estimated(pow2(x, 2, 0, True, True), x)),
    sample("prune", real(2, 3), rate=0.5, numeric=False,
           ref=lambda x: estimated(jnp.where(jnp.abs(x) < jnp.sort(jnp.abs(x).ravel())[2], 0.0, x), x)),
    sample("quantize_linear", real(2, 3), fixed([0.5, 0.25, 0.01]), fixed([0.0, 3.0, -2.4]), numeric=False,
           ref=lambda x, scale, zero: linear(x, scale, zero, -128, 127)),
    sample("quantize_linear", fixed(0.5, 1.5, 2.5, -0.5, -9.0), fixed(1.0), fixed(2.5), round_mode="HALF_TO_EVEN",
           narrow_range=True, dtype="uint8", ref=lambda x, s, z: linear(x, s, z, 1, 255, jnp.round), numeric=False),
    sample("dequantize_linear", whole([1, -128, 127], [0, 5, -3]), fixed([0.5, 0.25, 2.0]), whole(3),
           ref=lambda x, scale, zero: (x.astype(np.float64) - zero) * scale),
    sample("min_max_quantize", real(6), fixed(-0.8), fixed(0.4), *RANGE[2:], eps=2.0, orders=0, numeric=False,
           ref=lambda x, low, _, *levels: ranged(x, low, low + 2.0, *levels)),
    sample("min_max_quantize", real(2), *RANGE, quantize=False, orders=1, ref=lambda x, *_: x),
]
