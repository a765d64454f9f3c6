"""Samples of the family `deformable`."""

from __future__ import annotations

import jax.numpy as jnp

from . import Sample, between, real, sample


def hat(x):
    """What a cell at distance x counts for between cells; at kinks with the derivative towards larger x."""
    return jnp.where((x >= -1) & (x < 0), 1 + x, jnp.where((x >= 0) & (x < 1), 1 - x, 0))


def deformed(x, w, offset, mask=None, bias=None, pad=(0, 0), stride=(1, 1), dilation=(1, 1), group=1, deformable=1):
    """By its definition, with every cell of x weighted for every place that is read."""
    n, c, high, wide = x.shape
    out, _, *kernel = w.shape
    k = kernel[0] * kernel[1]
    offset = offset.reshape(n, deformable, k, 2, *offset.shape[2:])
    h, v = offset.shape[4:]
    places = [
        jnp.arange(count)[:, None] * s - p + jnp.arange(size) * d
        for count, size, s, p, d in zip((h, v), kernel, stride, pad, dilation, strict=True)
    ]
    rows = jnp.repeat(places[0].T, kernel[1], 0)[:, :, None] + offset[:, :, :, 0]
    columns = jnp.tile(places[1].T, (kernel[0], 1))[:, None, :] + offset[:, :, :, 1]
    shares = [hat(jnp.arange(size) - at[..., None]) for size, at in ((high, rows), (wide, columns))]
    apart = x.reshape(n, deformable, c // deformable, high, wide)
    read = jnp.einsum("ngchw,ngkpqh,ngkpqw->ngckpq", apart, *shares)
    if mask is not None:
        read = read * mask.reshape(n, deformable, 1, k, h, v)
    read = read.reshape(n, group, c // group, k, h, v)
    y = jnp.einsum("ngckpq,gock->ngopq", read, w.reshape(group, out // group, c // group, k)).reshape(n, out, h, v)
    return y if bias is None else y + bias[:, None, None]


def last(function):
    """The same with the channels last, of the inputs too, but for a bias."""
    def moved(*inputs):
        return jnp.moveaxis(function(*[jnp.moveaxis(x, -1, 1) if x.ndim == 4 else x for x in inputs]), 1, -1)
    return moved


def moves(*shape):
    """Offsets that lie well between whole numbers, in both directions."""
    return lambda rng: rng.integers(-2, 2, shape) + rng.uniform(0.2, 0.8, shape)


SAMPLES: list[Sample] = [
    sample("deformable_convolution", real(1, 2, 3, 3), real(1, 2, 2, 2), moves(1, 8, 2, 2), between(0, 1, 1, 4, 2, 2),
           real(1), note="mask and bias", ref=deformed),
    sample("deformable_convolution", real(1, 2, 2, 5), real(2, 1, 1, 2), moves(1, 8, 4, 2), pad=(1, 0), stride=(1, 2),
           dilation=(1, 2), group=2, deformable_group=2, note="groups",
           ref=lambda x, w, o: deformed(x, w, o, None, None, (1, 0), (1, 2), (1, 2), 2, 2)),
    sample("deformable_convolution", real(1, 3, 2, 1), real(2, 2, 1, 1), moves(1, 2, 2, 4), between(0, 1, 1, 2, 2, 2),
           channel_last=True, ref=last(deformed)),
    sample("deformable_convolution", real(2, 2, 2), real(1, 2, 1, 2), moves(4, 2, 1), base_axis=0, orders=2,
           ref=lambda x, w, o: deformed(x[None], w, o[None])[0]),
]
