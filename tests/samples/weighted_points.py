"""Samples of the family `weighted_points`."""

import jax.numpy as jnp

from . import Sample, real, sample, whole

INDICES = whole([[0, 2, 5, 1], [1, -1, 2, 2]], [[2, 2, 0, 3], [0, 1, 1, 0]])
"""Of three points: some are out of range."""


def taken(x, i):
    """The points (batch, C, K, Q) of x (batch, C, 3), 0 out of range."""
    at = jnp.take_along_axis(x[:, :, None], jnp.clip(i, 0, 2)[:, None], -1)
    return jnp.where((i >= 0) & (i < 3), 1, 0)[:, None] * at


def put(y, w, i):
    """The transpose."""
    hits = (i[..., None] == jnp.arange(3)).astype(y.dtype)
    return jnp.einsum("bcq,bkq,bkqp->bcp", y, w, hits)


def last(x):
    return jnp.swapaxes(x, 1, 2)


SAMPLES: list[Sample] = [
    sample("weighted_points", real(2, 2, 3), real(2, 2, 4), INDICES,
           ref=lambda x, w, i: jnp.einsum("bckq,bkq->bcq", taken(x, i), w)),
    sample("weighted_points", real(2, 3, 2), real(2, 2, 4), INDICES, channel_last=True,
           ref=lambda x, w, i: last(jnp.einsum("bckq,bkq->bcq", taken(last(x), i), w))),
    sample("weighted_points_data_grad", real(2, 2, 4), real(2, 2, 4), INDICES, size=3, ref=put),
    sample("weighted_points_weight_grad", real(2, 2, 4), real(2, 2, 3), INDICES,
           ref=lambda y, x, i: jnp.einsum("bcq,bckq->bkq", y, taken(x, i))),
    sample("weighted_points_data_grad", real(2, 4, 2), real(2, 2, 4), INDICES, size=3, channel_last=True,
           ref=lambda y, w, i: last(put(last(y), w, i))),
    sample("weighted_points_weight_grad", real(2, 4, 2), real(2, 3, 2), INDICES, channel_last=True,
           ref=lambda y, x, i: jnp.einsum("bcq,bckq->bkq", last(y), taken(last(x), i))),
]
