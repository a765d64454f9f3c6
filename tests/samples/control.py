"""Samples of the family `control`."""

import jax
import jax.numpy as jnp

from . import Sample, fixed, integers, real, sample

SAMPLES: list[Sample] = [
    sample("sink", real(2, 3), real(4), ref=lambda *_: jnp.zeros((), jnp.float32), surrogate=True),
    sample("sink", real(2), ref=lambda *_: jnp.zeros((), jnp.float32), surrogate=True, one_input_grad=False),
    sample("unlink", real(2, 3), ref=jax.lax.stop_gradient, numeric=False),
    sample("optimization_barrier", real(2, 3), real(4), ref=lambda x, _: x),
    sample(
        "optimization_barrier", real(3), integers(0, 5, 2), fixed(float("nan")),
        ref=lambda x, *_: x, numeric=False, note="NaN",
    ),
    sample("sharding_constraint", real(2, 3), ref=lambda x: x, axes=("data", None)),
    sample("recomputed", fixed(0.5, -2.0), fixed(0.5, -2.0), ref=lambda _, original: original, numeric=False),
    sample("value_of", real(2, 3), real(2, 3), ref=lambda _, src: src, surrogate=True),
    sample("assign", real(2, 3), real(2, 3), ref=lambda _, src: src, surrogate=True),
    sample("update", real(2, 3), real(4), ref=lambda *x: x),
]
