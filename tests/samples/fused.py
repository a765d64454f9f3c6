"""Samples of functions that are several under one name."""

import jax
import jax.numpy as jnp
from jax import lax

from . import positive, real, sample


def convolved(x, w, pad):
    return lax.conv_general_dilated(x, w, (1,), pad, dimension_numbers=("NCW", "OIW", "NCW"))


def normal(y, beta, gamma):
    return (y - y.mean((0, 2), keepdims=True)) / jnp.sqrt(y.var((0, 2), keepdims=True) + 1e-5) * gamma + beta


SAMPLES = [
    sample("fused_convolution", real(2, 2, 3), real(2, 2, 2), real(2), pad=1, nonlinearity="elu",
           nonlinearity_args=[0.5],
           ref=lambda x, w, b: jax.nn.elu(convolved(x, w, [(1, 1)]) + b[:, None], 0.5)),
    sample("fused_convolution", real(2, 2, 3), real(2, 2, 2), real(2), real(1, 2, 1), positive(1, 2, 1), real(1, 2, 1),
           positive(1, 2, 1), real(2, 2, 4), pad=1, pad_mode="reflect", nonlinearity="tanh", note="normalised",
           ref=lambda x, w, b, beta, gamma, _m, _v, z: jnp.tanh(normal(
               convolved(jnp.pad(x, ((0, 0), (0, 0), (1, 1)), "reflect"), w, [(0, 0)]) + b[:, None], beta, gamma) + z)),
    sample("fused_convolution", real(2, 2, 4), real(2, 1, 2), real(2), *[real(1, 2, 1)] * 3, positive(1, 2, 1), pad=1,
           stride=2, dilation=2, group=2, eps=0.1, batch_stat=False, nonlinearity="sigmoid", constant_value=0.5,
           orders=2, ref=lambda x, w, b, beta, gamma, m, v: jax.nn.sigmoid((lax.conv_general_dilated(
               jnp.pad(x, ((0, 0), (0, 0), (1, 1)), constant_values=0.5), w, (2,), "VALID", rhs_dilation=(2,),
               dimension_numbers=("NCW", "OIW", "NCW"), feature_group_count=2,
           ) + b[:, None] - m) / jnp.sqrt(v + 0.1) * gamma + beta)),
    sample("fused_convolution", real(1, 2, 3, 1), real(2, 2, 1), base_axis=2, channel_last=True, pad=1,
           constant_value=2.0, nonlinearity="identity", orders=2,
           ref=lambda x, w: (lambda y: y[:, :, :-1] @ w[:, 0].T + y[:, :, 1:] @ w[:, 1].T)(
               jnp.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)), constant_values=2.0))),
]
