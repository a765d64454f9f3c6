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
]
