"""Samples of the family `images`."""

import jax
import jax.numpy as jnp
import numpy as np

from . import Sample, real, sample
from .stochastic import ZEROS, as_key


def drawn(index, most, channels=1):
    """A number for each of two images, uniform from -most to most."""
    key = jax.random.fold_in(as_key(ZEROS), index)
    u = jax.random.uniform(key, (2, channels, 1, 1), jnp.float32) * np.float32(2 * most) - np.float32(most)
    return u.astype(jnp.float64)


def changed(x):
    """Two images of 3 x 4, turned, mirrored and cut to 2 x 3; and their values changed."""
    turn = drawn(7, 0.5)
    mirror = jnp.where(jax.random.uniform(jax.random.fold_in(as_key(ZEROS), 3), (2, 1, 1, 1), jnp.float32) < 0.5, 1, -1)
    v, u = jnp.arange(2.0)[:, None] - 0.5, jnp.arange(3.0)[None] - 1
    rows = jnp.cos(turn) * v + jnp.sin(turn) * u + 1 + drawn(4, 1) * 0.5
    columns = (jnp.cos(turn) * u - jnp.sin(turn) * v) * mirror + 1.5 + drawn(5, 1) * 0.5
    images = []
    for image, row, column in zip(x, rows[:, 0], columns[:, 0], strict=True):
        images.append(jnp.stack([jax.scipy.ndimage.map_coordinates(c, [row, column], 1, "constant") for c in image]))
    factor = jnp.exp(drawn(8, np.log(1.5), 2))
    return (jnp.stack(images) - 0.3) * factor + 0.3 + drawn(9, 0.2)


SAMPLES: list[Sample] = [
    sample("image_augmentation", real(2, 2, 3, 4), shape=(2, 2, 3), angle=0.5, flip_lr=True, contrast=1.5,
           contrast_center=0.3, contrast_each=True, brightness=0.2, orders=2, ref=changed),
]
