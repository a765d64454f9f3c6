"""Samples of the family `pooling`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from . import Sample, fixed, real, sample


def pool(reduce, x, kernel, stride, count, low=0, fill=0.0):
    """Window by window along the last two axes: `reduce` of each, of which there are `count`."""
    ends = [(0, 0)] * (x.ndim - 2) + [(low, 20)] * 2
    x = jnp.pad(x, ends, constant_values=fill)
    return jnp.stack([jnp.stack([
        reduce(x[..., i * stride[0]:i * stride[0] + kernel[0], j * stride[1]:j * stride[1] + kernel[1]], axis=(-2, -1))
        for j in range(count[1])], -1) for i in range(count[0])], -2)


def line(reduce, x, kernel, stride, count):
    return jnp.stack([reduce(x[..., i * stride:i * stride + kernel], axis=-1) for i in range(count)], -1)


def largest(x, g):
    """g at the maxima of the 2x2 windows of x."""
    (h, w), lead = x.shape[-2:], x.shape[:-2]
    x, g = (a.reshape(*lead, h // 2, 2, w // 2, 2).swapaxes(-3, -2).reshape(*lead, h // 2, w // 2, 4) for a in (x, g))
    return jnp.take_along_axis(g, jnp.argmax(x, -1)[..., None], -1)[..., 0]


def scattered(x, gy):
    """gy at the maxima of the 2x2 windows of x, zeros elsewhere."""
    grow = jnp.ones((2, 2))
    first = jnp.kron(pool(jnp.max, x, (2, 2), (2, 2), gy.shape[-2:]), grow) == x
    return jnp.kron(gy, grow) * first


def last(function):
    return lambda x: jnp.moveaxis(function(jnp.moveaxis(x, -1, 1)), 1, -1)


BEYOND = {"kernel": 3, "stride": 2, "ignore_border": False, "pad": 1, "channel_last": True}
APART = {"kernel": 2, "stride": 2, "dilation": 2, "ceil_mode": True}


def beyond(x, of_two=jnp.maximum):
    """Windows of four elements and the margins beside them."""
    return jnp.stack([of_two(x[0], x[1]), of_two(of_two(x[1], x[2]), x[3]), x[3]])


def apart(x, of_two=jnp.maximum):
    """Dilated windows of six elements, the last of which reaches beyond them."""
    return jnp.stack([of_two(x[0], x[2]), of_two(x[2], x[4]), x[4]])


SAMPLES: list[Sample] = [
    sample("max_pooling", real(2, 2, 4, 4), kernel=(2, 2), ref=lambda x: pool(jnp.max, x, (2, 2), (2, 2), (2, 2))),
    sample("max_pooling", real(5, 4), kernel=(3, 2), stride=(2, 1), note="no channel axis",
           ref=lambda x: pool(jnp.max, x, (3, 2), (2, 1), (2, 3))),
    sample("max_pooling", real(1, 3, 4), kernel=(2, 2), pad=(1, 1), stride=(2, 2),
           ref=lambda x: pool(jnp.max, x, (2, 2), (2, 2), (2, 3), 1, -np.inf)),
    sample("max_pooling", real(1, 5, 3), kernel=(3, 2), stride=2, ignore_border=False,
           ref=lambda x: pool(jnp.max, x, (3, 2), (2, 2), (3, 2), 0, -np.inf)),
    sample("max_pooling", real(1, 5, 4, 2), kernel=(2, 2), channel_last=True, ceil_mode=True,
           ref=last(lambda x: pool(jnp.max, x, (2, 2), (2, 2), (3, 2), 0, -np.inf))),
    sample("max_pooling", real(1, 6, 5), kernel=(2, 2), stride=(2, 3), dilation=(3, 2), ceil_mode=True,
           ref=lambda x: jnp.stack([x[:, [0, 3]][:, :, [0, 2]].max((1, 2)), x[:, [0, 3], 3].max(1),
                                    x[:, [2, 5]][:, :, [0, 2]].max((1, 2)), x[:, [2, 5], 3].max(1)], 1)
           .reshape(1, 2, 2)),
    sample("max_pooling", real(2, 7), kernel=3, stride=2, ref=lambda x: line(jnp.max, x, 3, 2, 3)),
    sample("max_pooling", real(2, 2, 2, 4), kernel=(2, 2, 2), note="3-d",
           ref=lambda x: x.reshape(2, 2, 2, 2, 2).max((1, 2, 4))[:, None, None]),
    sample("max_pooling", fixed([1.0, 2.0, 2.0], [2.0, 1.0, 2.0]), kernel=(2, 2), stride=1, numeric=False, note="ties",
           ref=lambda x: x[:1, [1, 1]]),
    sample("max_pooling_backward", real(1, 2, 1), real(1, 4, 2), kernel=(2, 2), ref=lambda g, x: scattered(x, g)),
    sample("max_pooling_select", real(2, 4, 4), real(2, 4, 4), kernel=(2, 2), ref=lambda g, x: largest(x, g)),
    sample("max_pooling_backward", real(3, 1), real(4, 1), **BEYOND, ref=lambda g, x: jax.vjp(beyond, x)[1](g)[0]),
    sample("max_pooling_backward", real(3), real(6), **APART, ref=lambda g, x: jax.vjp(apart, x)[1](g)[0]),
    sample("max_pooling_select", real(4, 1), real(4, 1), **BEYOND, ref=lambda g, x: jax.jvp(beyond, (x,), (g,))[1]),
    sample("max_pooling_select", real(6), real(6), **APART, ref=lambda g, x: jax.jvp(apart, (x,), (g,))[1]),
    sample("average_pooling", real(1, 2, 4, 4), kernel=(2, 2), ref=lambda x: pool(jnp.mean, x, (2, 2), (2, 2), (2, 2))),
    sample("average_pooling", real(1, 3, 4), kernel=(2, 2), stride=(2, 1), pad=(1, 1),
           ref=lambda x: pool(jnp.mean, x, (2, 2), (2, 1), (2, 5), 1)),
    sample("average_pooling", real(1, 3, 4), kernel=(2, 2), stride=(2, 1), pad=(1, 1), including_pad=False,
           ref=lambda x: pool(jnp.nanmean, x, (2, 2), (2, 1), (2, 5), 1, np.nan)),
    sample("average_pooling", real(1, 5, 3), kernel=(2, 2), stride=2, ignore_border=False,
           ref=lambda x: pool(jnp.nanmean, x, (2, 2), (2, 2), (3, 2), 0, np.nan)),
    sample("average_pooling", real(1, 6), kernel=3, stride=2, pad=1, ceil_mode=True, note="ceil",
           ref=lambda x: jnp.stack([(x[:, 0] + x[:, 1]) / 3, x[:, 1:4].mean(1), x[:, 3:6].mean(1), x[:, 5] / 2], 1)),
    sample("average_pooling", real(1, 4, 2, 2), kernel=(2, 1), channel_last=True,
           ref=last(lambda x: pool(jnp.mean, x, (2, 1), (2, 1), (2, 2)))),
    sample("sum_pooling", real(2, 4, 5), kernel=(2, 3), stride=(2, 1),
           ref=lambda x: pool(jnp.sum, x, (2, 3), (2, 1), (2, 3))),
    sample("sum_pooling", real(2, 3), kernel=(2, 2), stride=2, pad=1, ignore_border=False,
           ref=lambda x: pool(jnp.sum, x, (2, 2), (2, 2), (2, 2), 1)),
    sample("sum_pooling", real(70), kernel=33, stride=30, note="long", ref=lambda x: line(jnp.sum, x, 33, 30, 2)),
    sample("sum_pooling", real(2, 2, 4), kernel=(2, 1, 2), note="3-d",
           ref=lambda x: x.sum(0, keepdims=True).reshape(1, 2, 2, 2).sum(-1)),
    sample("sum_pooling_backward", real(2, 2), shape=(4, 5), kernel=(2, 2),
           ref=lambda g: jnp.pad(jnp.kron(g, jnp.ones((2, 2))), ((0, 0), (0, 1)))),
    sample("average_pooling_backward", real(2, 2), shape=(4, 5), kernel=(2, 2),
           ref=lambda g: jnp.pad(jnp.kron(g, jnp.ones((2, 2))) / 4, ((0, 0), (0, 1)))),
    sample("sum_pooling", real(4, 1), **BEYOND, ref=lambda x: beyond(x, jnp.add)),
    sample("sum_pooling", real(6), **APART, ref=lambda x: apart(x, jnp.add)),
    sample("sum_pooling_backward", real(3, 1), shape=(4, 1), **BEYOND,
           ref=lambda g: jnp.stack([g[0], g[0] + g[1], g[1], g[1] + g[2]])),
    sample("sum_pooling_backward", real(3), shape=(6,), **APART,
           ref=lambda g: jnp.stack([g[0], 0 * g[0], g[0] + g[1], 0 * g[0], g[1] + g[2], 0 * g[0]])),
    sample("average_pooling_backward", real(3, 1), shape=(4, 1), including_pad=False, **BEYOND,
           ref=lambda g: jnp.stack([g[0] / 2, g[0] / 2 + g[1] / 3, g[1] / 3, g[1] / 3 + g[2]])),
    sample("average_pooling_backward", real(2), shape=(4,), kernel=3, stride=2, ceil_mode=True,
           ref=lambda g: jnp.stack([g[0] / 3, g[0] / 3, g[0] / 3 + g[1] / 2, g[1] / 2])),
    sample("global_average_pooling", real(2, 2, 2, 3), ref=lambda x: x.mean((2, 3), keepdims=True)),
    sample("unpooling", real(2, 2, 3), kernel=(2, 3), ref=lambda x: x.repeat(2, 1).repeat(3, 2)),
    sample("unpooling", real(1, 3, 2), kernel=2, channel_last=True, ref=lambda x: x.repeat(2, 1)),
]
