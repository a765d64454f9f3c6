"""Samples of the family `shaping`."""

import jax.numpy as jnp

from . import real, sample


def depth_to_space(x):
    """By its definition, pixel by pixel."""
    n, depth, height, width = x.shape
    c = depth // 4
    result = jnp.zeros((n, c, 2 * height, 2 * width), x.dtype)
    for i in range(2):
        for j in range(2):
            for k in range(c):
                result = result.at[:, k, i::2, j::2].set(x[:, (i * 2 + j) * c + k])
    return result


SAMPLES = [
    sample("expand_dims", real(2, 3), ref=lambda x: x[:, None], axis=1),
    sample("expand_dims", real(2, 3), ref=lambda x: x[None, :, :, None], axis=(0, -1)),
    sample("squeeze", real(1, 2, 1), ref=lambda x: x[0, :, 0]),
    sample("squeeze", real(1, 2, 1), ref=lambda x: x[:, :, 0], axis=-1),
    sample("flatten", real(2, 3), ref=lambda x: x.ravel()),
    sample("moveaxis", real(2, 3, 4), ref=lambda x: jnp.moveaxis(x, 0, -1), source=0, destination=-1),
    sample("moveaxis", real(2, 3, 4), ref=lambda x: jnp.moveaxis(x, (2, 0), (0, 1)), source=(2, 0), destination=(0, 1)),
    sample("swapaxes", real(2, 3, 4), ref=lambda x: jnp.swapaxes(x, 0, 2), axis1=0, axis2=-1),
    sample("repeat", real(2, 3), ref=lambda x: jnp.repeat(x, 2), repeats=2),
    sample("repeat", real(2, 3), ref=lambda x: jnp.repeat(x, 2, axis=1), repeats=2, axis=1),
    sample("repeat", real(2, 3), ref=lambda x: x[:, jnp.array([0, 2, 2, 2])], repeats=(1, 0, 3), axis=-1),
    sample("depth2space", real(2, 8, 1, 3), ref=depth_to_space, r=2),
    sample("space2depth", real(1, 2, 2, 4), r=2,
           ref=lambda x: jnp.concatenate([x[:, :, i::2, j::2] for i in (0, 1) for j in (0, 1)], 1)),
    sample("shift", real(2, 3), shifts=(0, 2), ref=lambda x: x[:, jnp.array([0, 0, 0])]),
    sample("shift", real(2, 3), shifts=(-3, 2), border_mode="reflect",
           ref=lambda x: x[jnp.array([0, 0])][:, jnp.array([1, 0, 0])]),
]
