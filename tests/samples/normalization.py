"""Samples of normalisations."""

import jax
import jax.numpy as jnp

from . import positive, real, sample


def standardised(x, axes, eps=1e-5):
    m = jnp.mean(x, axes, keepdims=True)
    v = jnp.var(x, axes, keepdims=True)
    return (x - m) / jnp.sqrt(v + eps), m, v


def batch(x, beta=0.0, gamma=1.0, *_, axes=(0, 2), eps=1e-5):
    return standardised(x, axes, eps)[0] * gamma + beta


def grouped(x, groups, eps=1e-5):
    y, m, v = standardised(x.reshape(x.shape[0], groups, -1, *x.shape[2:]), tuple(range(2, x.ndim + 1)), eps)
    return y.reshape(x.shape), m, v


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
    sample("layer_normalization", real(2, 3, 2), real(1, 3, 2), real(1, 3, 2),
           ref=lambda x, b, g: standardised(x, (1, 2))[0] * g + b),
    sample("layer_normalization", real(2, 3, 2), batch_axis=(0, 1), output_stat=True,
           ref=lambda x: standardised(x, (2,))),
    sample("layer_normalization", real(3, 2), real(3, 1), batch_axis=-1, eps=0.1,
           ref=lambda x, b: standardised(x, (0,), 0.1)[0] + b),
    sample("instance_normalization", real(2, 2, 3), real(1, 2, 1), real(2, 2, 1),
           ref=lambda x, b, g: standardised(x, (2,))[0] * g + b, note="adaptive"),
    sample("instance_normalization", real(2, 3, 2), channel_axis=-1, output_stat=True,
           ref=lambda x: standardised(x, (1,))),
    sample("group_normalization", real(2, 4, 2), real(1, 4, 1), real(1, 4, 1), num_groups=2,
           ref=lambda x, b, g: grouped(x, 2)[0] * g + b),
    sample("group_normalization", real(2, 4), num_groups=2, output_stat=True, ref=lambda x: grouped(x, 2)),
    sample("group_normalization", real(3, 4, 2), num_groups=2, channel_axis=1, batch_axis=2,
           ref=lambda x: jnp.moveaxis(grouped(jnp.moveaxis(x, 2, 0).swapaxes(1, 2), 2)[0].swapaxes(1, 2), 0, 2)),
    sample("fused_batch_normalization", real(2, 3, 2), real(*CHANNELS), real(*CHANNELS), real(*CHANNELS),
           positive(*CHANNELS), real(2, 3, 2), ref=lambda x, b, g, _m, _v, z: jax.nn.relu(batch(x, b, g) + z)),
    sample("fused_batch_normalization", real(3, 2), output_stat=True,
           ref=lambda x: (jax.nn.relu(batch(x, axes=(0,))), *standardised(x, (0,))[1:])),
    sample("tensor_normalization", real(2, 3, 2), real(2, 1, 2), real(2, 1, 2), axes=(0, -1), output_stat=True,
           ref=lambda x, b, g: (lambda y, m, v: (y * g + b, m, v))(*standardised(x, (1,)))),
    sample("weight_standardization", real(2, 3, 2), channel_axis=-2, output_stat=True,
           ref=lambda w: standardised(w, (0, 2))),
    sample("weight_normalization", real(2, 3), positive(3), dim=1,
           ref=lambda w, g: g * w / jnp.linalg.norm(w, axis=0, keepdims=True)),
]
