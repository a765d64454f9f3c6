"""Samples of the family `separable`."""

import jax.numpy as jnp

from . import real, sample


def separable(x, v, h):
    """By its definition, element by element of the kernels."""
    (_, rows, *sizes), columns = v.shape, h.shape[1]
    return sum(
        v[:, None, j] * h[:, None, i] * x[:, :, j:j + sizes[0], i:i + sizes[1]]
        for j in range(rows) for i in range(columns)
    )


SAMPLES = [
    sample("adaptive_separable_convolution", real(1, 2, 3, 4), real(1, 2, 2, 2), real(1, 3, 2, 2), ref=separable),
    sample("separable_data_grad", real(1, 1, 2, 1), real(1, 2, 2, 1), real(1, 2, 2, 1),
           ref=lambda y, v, h: sum(
               jnp.pad(v[:, None, j] * h[:, None, i] * y, ((0, 0), (0, 0), (j, 1 - j), (i, 1 - i)))
               for j in (0, 1) for i in (0, 1))),
    sample("separable_vertical_grad", real(1, 2, 1, 2), real(1, 2, 2, 3), real(1, 2, 1, 2),
           ref=lambda y, x, h: jnp.stack([
               sum((y * x[:, :, j:j + 1, i:i + 2] * h[:, None, i]).sum(1) for i in (0, 1)) for j in (0, 1)], 1)),
    sample("separable_horizontal_grad", real(1, 2, 1, 2), real(1, 2, 2, 3), real(1, 2, 1, 2),
           ref=lambda y, x, v: jnp.stack([
               sum((y * x[:, :, j:j + 1, i:i + 2] * v[:, None, j]).sum(1) for j in (0, 1)) for i in (0, 1)], 1)),
]
