"""Samples of the family `convolution`."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from . import Sample, real, sample

FIRST = {1: ("NCW", "OIW", "NCW"), 2: ("NCHW", "OIHW", "NCHW"), 3: ("NCDHW", "OIDHW", "NCDHW")}
LAST = {1: ("NWC", "OWI", "NWC"), 2: ("NHWC", "OHWI", "NHWC"), 3: ("NDHWC", "ODHWI", "NDHWC")}


def conv(x, w, pad, stride, dilation, group=1, last=False):
    names = (LAST if last else FIRST)[x.ndim - 2]
    return lax.conv_general_dilated(
        x, w, stride, [(p, p) for p in pad], rhs_dilation=dilation, dimension_numbers=names, feature_group_count=group
    )


def deconv(x, w, pad, stride, dilation, extra, group=1):
    """By its definition: zeros between the elements of x, then a convolution with the flipped kernel."""
    kernel = w.shape[2:]
    c, out = w.shape[:2]
    w = w.reshape(group, c // group, out, *kernel).swapaxes(1, 2).reshape(group * out, c // group, *kernel)
    w = jnp.flip(w, range(2, w.ndim))
    ends = [(d * (k - 1) - p, d * (k - 1) - p + e) for d, k, p, e in zip(dilation, kernel, pad, extra, strict=True)]
    return lax.conv_general_dilated(
        x, w, (1,) * len(kernel), ends, lhs_dilation=stride, rhs_dilation=dilation,
        dimension_numbers=FIRST[len(kernel)], feature_group_count=group,
    )


SAMPLES: list[Sample] = [
    sample("convolution", real(2, 2, 5), real(3, 2, 3), real(3), note="1-d",
           ref=lambda x, w, b: conv(x, w, (0,), (1,), (1,)) + b[:, None]),
    sample("convolution", real(1, 2, 5, 6), real(2, 2, 3, 2), real(2), note="2-d", pad=(1, 0), stride=(2, 1),
           ref=lambda x, w, b: conv(x, w, (1, 0), (2, 1), (1, 1)) + b[:, None, None]),
    sample("convolution", real(1, 4, 5, 5), real(2, 2, 2, 2), note="groups", pad=(1, 1), stride=(3, 2), dilation=(2, 1),
           group=2, ref=lambda x, w: conv(x, w, (1, 1), (3, 2), (2, 1), group=2)),
    sample("convolution", real(2, 5, 4, 2), real(3, 3, 2, 2), real(3), note="channel_last", pad=1, stride=2,
           channel_last=True, ref=lambda x, w, b: conv(x, w, (1, 1), (2, 2), (1, 1), last=True) + b),
    sample("convolution", real(1, 4, 3, 4), real(4, 2, 2, 2), note="channel_last groups", channel_last=True, group=2,
           ref=lambda x, w: conv(x, w, (0, 0), (1, 1), (1, 1), group=2, last=True)),
    sample("convolution", real(1, 1, 3, 3, 3), real(2, 1, 2, 2, 2), note="3-d", stride=(1, 2, 1),
           ref=lambda x, w: conv(x, w, (0, 0, 0), (1, 2, 1), (1, 1, 1))),
    sample("convolution", real(2, 2, 1, 4), real(2, 1, 3), real(2), note="two batch axes", base_axis=2, pad=(1,),
           ref=lambda x, w, b: conv(x.reshape(4, 1, 4), w, (1,), (1,), (1,)).reshape(2, 2, 2, 4) + b[:, None]),
    sample("convolution", real(2, 4), real(1, 2, 2), real(1), note="no batch axis", base_axis=0,
           ref=lambda x, w, b: conv(x[None], w, (0,), (1,), (1,))[0] + b[:, None]),
    sample("convolve", real(1, 2, 4, 4), real(2, 2, 3, 3), pad=(1, 1), stride=(2, 2), dilation=(1, 1), group=1,
           channel_last=False, matmul_precision="highest", ref=lambda x, w: conv(x, w, (1, 1), (2, 2), (1, 1))),
    sample("convolve_data_grad", real(1, 2, 2, 2), real(2, 2, 2, 3), shape=(1, 2, 4, 4), pad=(0, 1), stride=(2, 2),
           dilation=(1, 1), group=1, channel_last=False, matmul_precision="highest",
           ref=lambda y, w: deconv(y, w, (0, 1), (2, 2), (1, 1), (0, 1))),
    sample("convolve_filter_grad", real(1, 2, 3), real(1, 2, 5), shape=(2, 2, 3), pad=(0,), stride=(1,), dilation=(1,),
           group=1, channel_last=False, matmul_precision="highest",
           ref=lambda y, x: jnp.einsum("nol,nclk->ock", y, jnp.stack([x[..., k:k + 3] for k in range(3)], -1))),
    sample("deconvolution", real(2, 2, 3), real(2, 3, 2), real(3), note="1-d", stride=2, output_padding=1,
           ref=lambda x, w, b: deconv(x, w, (0,), (2,), (1,), (1,)) + b[:, None]),
    sample("deconvolution", real(1, 4, 2, 3), real(4, 1, 3, 2), note="groups", group=2, pad=(1, 0), stride=(2, 1),
           dilation=(1, 2), ref=lambda x, w: deconv(x, w, (1, 0), (2, 1), (1, 2), (0, 0), group=2)),
    sample("deconvolution", real(1, 2, 3, 2), real(2, 2, 2, 3), real(3), note="channel_last", channel_last=True,
           stride=(2, 2), ref=lambda x, w, b: jnp.moveaxis(
               deconv(jnp.moveaxis(x, -1, 1), jnp.moveaxis(w, -1, 1), (0, 0), (2, 2), (1, 1), (0, 0)), 1, -1) + b),
    sample("depthwise_convolution", real(1, 2, 4, 3), real(4, 2, 2), real(4), multiplier=2, pad=(1, 0),
           ref=lambda x, w, b: conv(x, w[:, None], (1, 0), (1, 1), (1, 1), group=2) + b[:, None, None]),
    sample("depthwise_convolution", real(2, 3, 5), real(3, 3), note="1-d", stride=2,
           ref=lambda x, w: conv(x, w[:, None], (0,), (2,), (1,), group=3)),
    sample("depthwise_deconvolution", real(1, 4, 3), real(4, 2), real(2), divisor=2, stride=2,
           ref=lambda x, w, b: deconv(x, w[:, None], (0,), (2,), (1,), (0,), group=2) + b[:, None]),
    sample("deconvolution", real(1, 2, 2, 3), real(2, 1, 2), base_axis=2, stride=2, orders=2,
           ref=lambda x, w: deconv(x[0], w, (0,), (2,), (1,), (0,))[None]),
    sample("depthwise_convolution", real(2, 1, 2, 4), real(2, 2), base_axis=2, dilation=2, orders=2,
           ref=lambda x, w: conv(x[:, 0], w[:, None], (0,), (1,), (2,), group=2)[:, None]),
    sample("depthwise_deconvolution", real(2, 1, 2, 3), real(2, 2), base_axis=2, pad=1, dilation=2, orders=2,
           ref=lambda x, w: deconv(x[:, 0], w[:, None], (1,), (1,), (2,), (0,), group=2)[:, None]),
]
