"""Samples of the family `sets`."""

import jax.numpy as jnp
import numpy as np

from . import Sample, fixed, real, sample, whole

MASK = whole([1, 0, 0], [0, 2, 1])
"""Three of its elements are not 0."""


def placed(x, base):
    """`base` with `x` where MASK is not 0."""
    return base.at[jnp.array([0, 1, 1]), jnp.array([0, 1, 2])].set(x)


SAMPLES: list[Sample] = [
    sample("searchsorted", fixed([1.0, 2.0, 4.0], [0.0, 0.5, 9.0]), fixed([2.0, 5.0], [-1.0, 0.5]), orders=0,
           ref=lambda *_: jnp.array([[1, 3], [0, 1]], jnp.int32)),
    sample("searchsorted", whole(1, 2, 4), whole(2, 4, 0), right=True, orders=0,
           ref=lambda *_: jnp.array([2, 3, 0], jnp.int32)),
    sample("true_places", MASK, size=4, orders=0,
           ref=lambda _: jnp.array([[0, 0], [1, 1], [1, 2], [2, 3]], jnp.int32)),
    sample("true_places", MASK, size=2, whole=True, orders=0, ref=lambda _: jnp.array([[2, 3], [2, 3]], jnp.int32)),
    sample("true_ranks", MASK, orders=0, ref=lambda _: jnp.array([[0, -1, -1], [-1, 1, 2]], jnp.int32)),
    sample("nonzero", MASK, orders=0, ref=lambda _: jnp.array([[0, 1, 1], [0, 1, 2]], jnp.int32)),
    sample("bool_gather", real(2, 3, 2, 2), MASK,
           ref=lambda x, _: x.reshape(6, 4)[jnp.array([0, 4, 5])]),
    sample("bool_gather", real(2, 3), MASK, size=4,
           ref=lambda x, _: jnp.append(x.reshape(6)[jnp.array([0, 4, 5])], 0)),
    sample("bool_scatter", real(3), MASK, ref=lambda x, _: placed(x, jnp.zeros((2, 3)))),
    sample("bool_scatter", real(3, 2), MASK, real(2, 3, 2), ref=lambda x, _, base: placed(x, base)),
    sample("bool_fill", real(2, 3), whole(0, 1, 0), value=7, ref=lambda x, _: x.at[:, 1].set(7)),
    sample("distinct", whole(3, 1, 3, 2), size=4, orders=0, ref=lambda _: (
        jnp.array([1, 2, 3, 1], jnp.int32), jnp.array([1, 3, 0, 1], jnp.int32), jnp.array([2, 0, 2, 1], jnp.int32),
        jnp.array([1, 1, 2, 0], jnp.int32))),
    sample("distinct", whole([3, 1], [1, 2], [3, 1]), size=2, axis=0, orders=0, ref=lambda _: (
        jnp.array([[1, 2], [3, 1]], jnp.int32), jnp.array([1, 0], jnp.int32), jnp.array([1, 0, 1], jnp.int32),
        jnp.array([1, 2], jnp.int32))),
    sample("distinct", whole(3, 1, 0), size=2, whole=True, orders=0, ref=lambda _: (
        jnp.full(2, -(2**31), jnp.int32), jnp.array([2, 1], jnp.int32), jnp.array([2, 1, 0], jnp.int32),
        jnp.array([1, 1], jnp.int32))),
    sample("unique", fixed(3, 1, 3, 2), sorted=False, with_inverse=True, orders=0,
           ref=lambda _: (jnp.array([3.0, 1.0, 2.0]), jnp.array([0, 1, 0, 2], np.int32))),
    sample("unique", fixed(3, 1, 3, 2), size=4, with_counts=True, orders=0,
           ref=lambda _: (jnp.array([1.0, 2.0, 3.0, 1.0]), jnp.array([1, 1, 2, 0], np.int32))),
    sample("segment_prod", real(5, 2), whole(2, 0, 2, -1, 2), count=4,
           ref=lambda x, _: jnp.stack([x[1], jnp.ones(2), x[0] * x[2] * x[4], jnp.ones(2)])),
    sample("segment_prod", fixed(0.0, 2.0, 0.0, 3.0), whole(0, 1, 0, 1), count=2, note="zeros",
           ref=lambda x, _: jnp.stack([x[0] * x[2], x[1] * x[3]])),
    sample("nonzero", MASK, size=4, orders=0, ref=lambda _: jnp.array([[0, 1, 1, 2], [0, 1, 2, 3]], jnp.int32)),
    sample("unique", fixed([3, 1], [3, 1], [0, 2]), flatten=False, axis=0, with_index=True, with_counts=True, orders=0,
           ref=lambda _: (jnp.array([[0.0, 2], [3, 1]]), jnp.array([2, 0], np.int32), jnp.array([1, 2], np.int32))),
]
