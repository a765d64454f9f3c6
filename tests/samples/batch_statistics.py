"""Samples of normalisations by the statistics of a batch."""

import jax
import jax.numpy as jnp

from . import positive, real, sample, whole
from .normalization import standardised


def batch(x, beta=0.0, gamma=1.0, *_, axes=(0, 2), eps=1e-5):
    return standardised(x, axes, eps)[0] * gamma + beta


CHANNELS = (1, 3, 1)

SAMPLES = [
    sample("batch_normalization", real(2, 3, 2), real(*CHANNELS), real(*CHANNELS), real(*CHANNELS),
           positive(*CHANNELS), ref=lambda x, b, g, *_: batch(x, b, g)),
    sample("batch_normalization", real(2, 3, 2), real(*CHANNELS), real(*CHANNELS), real(*CHANNELS),
           positive(*CHANNELS), eps=1e-3, batch_stat=False,
           ref=lambda x, b, g, m, v: (x - m) / jnp.sqrt(v + 1e-3) * g + b),
    sample("batch_normalization", real(3, 2), real(1, 2), output_stat=True,
           ref=lambda x, b: (batch(x, b, axes=(0,)), *standardised(x, (0,))[1:]), note="statistics"),
    sample("batch_normalization", real(2, 3, 2), axes=(0, -1), ref=lambda x: batch(x, axes=(1,)), note="two kept"),
    sample("batch_normalization", real(2, 3, 1), real(3), axes=1, ref=lambda x, b: batch(x, b.reshape(CHANNELS)),
           note="flat"),
    sample("fused_batch_normalization", real(2, 3, 2), real(*CHANNELS), real(*CHANNELS), real(*CHANNELS),
           positive(*CHANNELS), real(2, 3, 2), ref=lambda x, b, g, _m, _v, z: jax.nn.relu(batch(x, b, g) + z)),
    sample("fused_batch_normalization", real(3, 2), output_stat=True,
           ref=lambda x: (jax.nn.relu(batch(x, axes=(0,))), *standardised(x, (0,))[1:])),
    sample("fused_batch_normalization", real(4, 2), real(1, 2), axes=-1,
           ref=lambda x, b: jax.nn.relu(batch(x, b, axes=(0,)))),
    sample("sync_batch_normalization", real(2, 3, 2), real(*CHANNELS), real(*CHANNELS), real(*CHANNELS),
           positive(*CHANNELS), orders=1, ref=lambda x, b, g, *_: batch(x, b, g)),
    sample("mean_subtraction", real(3, 2), real(2), whole(3), ref=lambda x, m, t: x - (m + (x.mean(0) - m) / 4)),
    sample("mean_subtraction", real(2, 3, 2), real(2), base_axis=-1, update_running_mean=False, ref=lambda x, m: x - m),
    sample("fused_batch_normalization", real(2, 3), *[real(1, 3)] * 3, positive(1, 3), eps=0.1, batch_stat=False,
           orders=2, ref=lambda x, b, g, m, v: jax.nn.relu((x - m) / jnp.sqrt(v + 0.1) * g + b)),
    sample("sync_batch_normalization", real(2, 3), *[real(1, 3)] * 3, positive(1, 3), eps=0.1, batch_stat=False,
           orders=2, ref=lambda x, b, g, m, v: (x - m) / jnp.sqrt(v + 0.1) * g + b),
    sample("sync_batch_normalization", real(2, 3), axes=0, eps=0.1, output_stat=True, orders=1,
           ref=lambda x: standardised(x, (1,), 0.1)),
]
