"""Samples of the family `bits`."""

import jax.numpy as jnp

from . import Sample, sample, whole

ONE, OTHER = whole(5, -7, 12, 3), whole(3, 2, -5, 1)

SAMPLES: list[Sample] = [
    sample("integer_quotient", ONE, OTHER, ref=lambda x, y: jnp.trunc(x / y).astype(x.dtype), orders=0),
    sample("bitwise", ONE, OTHER, operation="and", ref=jnp.bitwise_and, orders=0),
    sample("bitwise", ONE, OTHER, operation="or", ref=jnp.bitwise_or, orders=0),
    sample("bitwise", ONE, whole(1), operation="right with sign", ref=lambda x, _: x // 2, orders=0),
    sample("bitwise", ONE, whole(2), operation="left", ref=lambda x, _: 4 * x, orders=0),
    sample("bits_of", ONE, operation="not", ref=lambda x: -x - 1, orders=0),
    sample("bits_of", ONE, operation="count", ref=lambda _: jnp.array([2, 30, 2, 2]), orders=0),
    sample("bits_of", ONE, operation="leading zeros", ref=lambda _: jnp.array([29, 0, 28, 30]), orders=0),
]
