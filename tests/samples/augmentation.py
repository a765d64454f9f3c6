"""Samples of the family `augmentation`."""

import jax
import jax.numpy as jnp
import numpy as np

from . import Sample, real, sample
from .stochastic import ZEROS, as_key


def offsets(counts, shape):
    """What is drawn with the key of a function that draws its own, for one axis after the other."""
    keys = [jax.random.fold_in(as_key(ZEROS), i) for i in range(len(counts))]
    drawn = [jax.random.randint(k, shape, 0, n, jnp.int32) for k, n in zip(keys, counts, strict=True)]
    return jnp.stack(drawn, -1)


def windows(x, starts, sizes):
    """A window of each row."""
    return jnp.stack([jax.lax.dynamic_slice(row, list(at), sizes) for row, at in zip(x, starts, strict=True)])


def heads(shape):
    """The coins of a function that draws its own key."""
    return jax.random.uniform(as_key(ZEROS), shape, jnp.float32) < np.float32(0.5)


def erased(x, n, channels):
    """Rectangles drawn as `random_erase` does, with NumPy's choice of places."""
    first, second = (jax.random.fold_in(as_key(ZEROS), i) for i in (0, 1))
    u = jax.random.uniform(first, (5, n, x.shape[0], channels, 1, 1), jnp.float32)
    noise = 255 * jax.random.uniform(second, x.shape, jnp.float32)
    height, width = x.shape[2:]
    area, aspect = (u[1] * 0.38 + 0.02) * height * width, u[2] * 3.0333 + 0.3
    size = [jnp.floor(jnp.minimum(jnp.sqrt(a), m)) for a, m in ((area * aspect, height), (area / aspect, width))]
    top, left = (jnp.floor(u[3 + i] * (m + 1 - size[i])) for i, m in enumerate((height, width)))
    row, column = jnp.arange(height)[:, None], jnp.arange(width)
    inside = (u[0] < 0.8) & (row >= top) & (row < top + size[0]) & (column >= left) & (column < left + size[1])
    return jnp.where(inside.any(0), noise, x)


SAMPLES: list[Sample] = [
    sample("random_crop", real(2, 3, 4), shape=(2,), ref=lambda x: windows(x, offsets((1, 3), (2,)), (3, 2))),
    sample("random_shift", real(2, 3, 4), shifts=(1, 2), ref=lambda x: windows(
        jnp.pad(x, ((0, 0), (1, 1), (2, 2)), mode="edge"), offsets((3, 5), (2,)), (3, 4))),
    sample("random_flip", real(3, 2, 4), axes=(1, 2), numeric=False, ref=lambda x: jnp.where(
        heads((2, 3))[1][:, None, None], jnp.where(heads((2, 3))[0][:, None, None], x[:, ::-1], x)[:, :, ::-1],
        jnp.where(heads((2, 3))[0][:, None, None], x[:, ::-1], x))),
    sample("random_erase", real(2, 2, 4, 5), prob=0.8, n=2, share=False, ref=lambda x: erased(x, 2, 2)),
    sample("random_erase", real(2, 2, 4, 5), prob=0.8, ste_fine_grained=False, surrogate=True,
           ref=lambda x: erased(x, 1, 1)),
    sample("vat_noise", real(2, 3), real(2, 3), eps=0.5, surrogate=True,
           ref=lambda x, _: 0.5 * x / jnp.sqrt(jnp.sum(x**2, 1, keepdims=True))),
    sample("vat_noise", real(2, 3), real(2, 3), base_axis=0, eps=0.5, surrogate=True,
           ref=lambda x, _: 0.5 * x / jnp.sqrt(jnp.sum(x**2))),
]
