"""Samples of the family `numbers`."""

import jax.numpy as jnp
import numpy as np

from . import Sample, fixed, real, sample, whole

INFINITE = fixed([0.5, np.nan, -np.inf], [np.inf, -1.5, 2.0])

SAMPLES: list[Sample] = [
    sample("isnan", INFINITE, ref=lambda x: jnp.isnan(x).astype(x.dtype), orders=0),
    sample("isinf", INFINITE, ref=lambda x: jnp.isinf(x).astype(x.dtype), orders=0),
    sample("reset_nan", fixed(0.5, np.nan, -2.0), val=3, ref=lambda x: jnp.where(jnp.isnan(x), 3, x), numeric=False),
    sample("reset_inf", fixed(0.5, np.inf, -np.inf), ref=lambda x: jnp.where(jnp.isinf(x), 0, x), numeric=False),
    sample("reset_inf", fixed(0.5, np.inf), val=-2, ref=lambda x: jnp.where(jnp.isinf(x), -2, x), numeric=False),
    sample("mod2", real(2, 3), fixed([0.7], [-0.4]), ref=jnp.fmod),
    sample("mod2", whole(5, -5, 7, 6), whole(3, 3, -3, 3), ref=jnp.mod, orders=0),
    sample("mod2", whole(5, -5, 7, 6), whole(3, 3, -3, 3), fmod=True, ref=jnp.fmod, orders=0),
    sample("whole_quotient", real(2, 3), fixed([0.7], [-0.4]), ref=lambda x, y: jnp.trunc(x / y), orders=0),
    sample("gcd", whole([12, -18], [0, 7]), whole(8, 0), ref=lambda *_: jnp.array([[4, 18], [8, 7]], jnp.int32),
           orders=0),
    sample("lcm", whole([12, -18], [0, 7]), whole(8, 4), ref=lambda *_: jnp.array([[24, 36], [0, 28]], jnp.int32),
           orders=0),
    sample("bit_shift", fixed(1, 200, 255, dtype=np.uint8), fixed(3, 1, 9, dtype=np.uint8), orders=0,
           ref=lambda *_: jnp.array([8, 144, 0], jnp.uint8)),
    sample("bit_shift", fixed(1, 200, 255, dtype=np.uint8), whole(1), direction="RIGHT", orders=0,
           ref=lambda x, _: x // 2),
]
