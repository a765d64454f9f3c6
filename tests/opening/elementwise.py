"""What of jax.numpy and jax.lax goes element by element."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .rows import ABOVE_ONE, LESS, MORE, POSITIVE, X, Y, row, rows_of

ROWS = [
    *rows_of(jnp, "jnp.", "abs arctan arcsinh around cbrt ceil cos cosh deg2rad exp exp2 expm1 fabs fix floor "
             "isfinite isinf isnan modf nan_to_num negative positive rad2deg reciprocal rint round sign signbit sin "
             "sinc sinh square tan tanh trunc unwrap i0 frexp angle real imag conj".replace(" fix", ""), X),
    *rows_of(jnp, "jnp.", "arccos arcsin arctanh", LESS),
    *rows_of(jnp, "jnp.", "log log10 log1p log2 sqrt", POSITIVE),
    *rows_of(jnp, "jnp.", "arccosh", ABOVE_ONE),
    *rows_of(jnp, "jnp.", "add arctan2 copysign divide divmod equal float_power floor_divide fmax fmin fmod greater "
             "greater_equal heaviside hypot isclose less less_equal logaddexp logaddexp2 logical_and logical_or "
             "logical_xor maximum minimum mod multiply not_equal remainder subtract true_divide", X, Y),
    *rows_of(jnp, "jnp.", "power pow", POSITIVE, MORE),
    row("jnp.clip", lambda x: jnp.clip(x, -0.7, 0.9), X),
    row("jnp.ldexp", lambda x: jnp.ldexp(x, 3), X),
    row("jnp.where", lambda x, y: jnp.where(x > y, jnp.sin(x), y**2), X, Y),
    row("jnp.select", lambda x, y: jnp.select([x > 1, y > 0], [x * y, y**2], x), X, Y),
    row("jnp.piecewise", lambda x: jnp.piecewise(x, [x < 0, x > 1], [jnp.sin, jnp.exp, lambda z: z**3]), X),
    row("jnp.polyval", lambda x: jnp.polyval(jnp.array([1.0, -2.0, 0.5]), x), X),
    row("jnp.interp", lambda x: jnp.interp(x, jnp.array([-2.0, -0.3, 0.4, 2.0]), jnp.array([1.0, 3.0, 2.0, 5.0])), X),
    row("whole numbers", lambda x: x * jnp.gcd(12, 18) + jnp.lcm(4, 6) * x + jnp.bitwise_count(7) * x
        + (jnp.arange(4) << 2 >> 1 & 5 | 2) * x, X),
    *rows_of(lax, "lax.", "abs cbrt ceil cos cosh erf erfc exp exp2 expm1 floor is_finite logistic neg reciprocal "
             "round sign sin sinh square tan tanh", X),
    *rows_of(lax, "lax.", "digamma lgamma log log1p rsqrt sqrt", POSITIVE),
    *rows_of(lax, "lax.", "acos asin atanh erf_inv", LESS),
    *rows_of(lax, "lax.", "add atan2 div max min mul ne rem sub", X, Y),
    *rows_of(lax, "lax.", "pow", POSITIVE, MORE),
    row("lax.nextafter", lambda x, y: lax.nextafter(lax.stop_gradient(x), 0.0) * y, X, Y,
        opaque=int(jax.__version_info__ < (0, 12))),  # before that, JAX has no derivative of it
    row("lax.integer_pow", lambda x: lax.integer_pow(x, -3), POSITIVE),
    row("lax.clamp", lambda x, y: lax.clamp(-0.5, x, abs(y) + 0.1), X, Y),
    row("lax.reduce_precision", lambda x: lax.reduce_precision(x, 11, 52) ** 3, X),
    row("lax.polygamma", lambda x: lax.polygamma(2.0, x), POSITIVE),
    row("lax.igamma", lambda x: lax.igamma(1.5, x), POSITIVE),
    row("lax.bessel_i0e", lambda x: lax.bessel_i0e(x) + lax.bessel_i1e(x), X),
    row("lax.stop_gradient", lambda x: lax.stop_gradient(jnp.sin(x)) * x**3, X),
    row("lax.convert_element_type", lambda x: lax.convert_element_type(lax.convert_element_type(x, int), float) * x, X),
    row("lax.bitcast_convert_type",
        lambda x: lax.bitcast_convert_type(x, jnp.uint64).astype(float) * 1e-19 * x, X),
]  # fmt: skip
