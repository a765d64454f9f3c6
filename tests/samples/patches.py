"""Samples of the family `patches`."""

import jax.numpy as jnp
import numpy as np

from . import fixed, real, sample, whole


def patches(x, ksize, stride, pad, counts, dilate=(1, 1)):
    """Element by element of the windows, channel by channel."""
    x = jnp.pad(x, ((0, 0), (0, 0), (pad, pad + 9), (pad, pad + 9)))
    parts = [
        x[:, c, i * dilate[0]:, j * dilate[1]:][:, ::stride, ::stride][:, :counts[0], :counts[1]]
        for c in range(x.shape[1]) for i in range(ksize[0]) for j in range(ksize[1])
    ]
    return jnp.stack(parts, 1)


def windows(x, size, stride, count):
    return [x[..., i * stride:i * stride + size] for i in range(count)]


def first(parts):
    return jnp.stack([part.max(-1) for part in parts], -1)


GIVEN = np.array([[[[0, 3], [1, 2]]]])


def placed(x):
    y = jnp.zeros((1, 1, 4, 4))
    for r in (0, 1):
        for c in (0, 1):
            i, j = divmod(int(GIVEN[0, 0, r, c]), 2)
            y = y.at[0, 0, 2 * r + i, 2 * c + j].add(x[0, 0, r, c])
    return y[:, :, :3, :3]


SAMPLES = [
    sample("im2col", real(1, 2, 4, 4), ksize=(2, 3), stride=2, pad=1,
           ref=lambda x: patches(x, (2, 3), 2, 1, (3, 2))),
    sample("im2col", real(1, 1, 6, 4), ksize=2, stride=2, cover_all=True, dilate=(2, 1),
           ref=lambda x: patches(x, (2, 2), 2, 0, (3, 2), (2, 1))),
    sample("col2im", real(1, 4, 2), shape=(1, 2, 4), ksize=2, stride=3, cover_all=True,
           ref=lambda y: jnp.zeros((1, 2, 5)).at[0, :, 0:2].set(y[0, :, 0].reshape(2, 2)).at[0, :, 3:5].set(
               y[0, :, 1].reshape(2, 2))[:, :, :4]),
    sample("col2im", real(1, 2, 4), shape=(1, 1, 4), ksize=2, pad=1, dilate=2,
           ref=lambda y: (jnp.pad(y[:, :1], ((0, 0), (0, 0), (0, 2))) + jnp.pad(y[:, 1:], ((0, 0), (0, 0), (2, 0))))
           [..., 1:5]),
    sample("max_pooling_nd", real(1, 2, 5), ksize=2, ref=lambda x: first([x[..., :2], x[..., 2:4], x[..., 4:]])),
    sample("max_pooling_nd", real(1, 1, 2, 2, 1, 2), ksize=(2, 1, 1, 2), note="4-d",
           ref=lambda x: x.max((2, 5), keepdims=True)),
    sample("max_pooling_1d", real(2, 1, 5), ksize=3, stride=2, pad=1, cover_all=False,
           ref=lambda x: first([x[..., :2], x[..., 1:4], x[..., 3:]])),
    sample("average_pooling_nd", real(1, 2, 3), ksize=2, stride=1, pad=1, pad_value=None,
           ref=lambda x: jnp.stack([part.mean(-1) for part in (x[..., :1], x[..., :2], x[..., 1:], x[..., 2:])], -1)),
    sample("average_pooling_1d", real(1, 2, 3), ksize=2, stride=1, pad=1,
           ref=lambda x: sum(windows(jnp.pad(x, ((0, 0), (0, 0), (1, 1))), 4, 1, 2)) / 2),
    sample("spatial_pyramid_pooling_2d", real(1, 2, 3, 4), pyramid_height=2, pooling="max",
           ref=lambda x: jnp.concatenate([x.max((2, 3)).ravel(), jnp.stack([
               x[:, :, a, b].max((2, 3)) for a in (slice(2), slice(2, 3)) for b in (slice(2), slice(2, 4))
           ], -1).ravel()]).reshape(1, -1, 1, 1)),
    sample("upsampling_2d", real(1, 1, 2, 2), whole(*GIVEN), ksize=2, outsize=3, ref=lambda x, i: placed(x)),
    sample("max_pooling_nd", real(1, 1, 5, 3), ksize=(3, 2), stride=(2, 3), pad=(1, 0), cover_all=False, orders=2,
           ref=lambda x: jnp.stack([x[:, :, a:b, :2].max((2, 3)) for a, b in ((0, 2), (1, 4), (3, 5))], -1)[..., None]),
    sample("average_pooling_1d", real(1, 2, 3), ksize=2, stride=1, pad=1, pad_value=None, orders=2,
           ref=lambda x: jnp.stack([part.mean(-1) for part in (x[..., :1], x[..., :2], x[..., 1:], x[..., 2:])], -1)),
    sample("upsampling_2d", real(1, 1, 2, 2), whole(*GIVEN), ksize=2, stride=1, pad=1, cover_all=False, orders=2,
           ref=lambda x, i: x[:, :, 1:, :1]),
    sample("max_pooling_nd", fixed([[1.0, 3.0, 2.0, 0.0]]), ksize=2, return_indices=True, orders=1,
           ref=lambda x: (x[..., 1:3], jnp.array([[[1, 0]]], np.int32))),
    sample("max_pooling_1d", fixed([[0.0, 1.0, 3.0, 2.0]]), ksize=2, return_indices=True, orders=1,
           ref=lambda x: (x[..., 1:3], jnp.array([[[1, 0]]], np.int32))),
]
