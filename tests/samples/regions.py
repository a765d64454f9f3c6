"""Samples of the family `regions`."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.ndimage import map_coordinates

from . import Sample, fixed, real, sample

BOXES = ((1.0, 0.2, 0.6, 2.7, 2.2), (0.0, 1.5, -0.5, 6.3, 1.5))
HALVES = ((0.0, 0.0, 0.0, 2.0, 1.0), (1.0, 0.0, 0.0, 2.0, 1.0))


def averaged(x, boxes, bins, scale, samples):
    """The bins of boxes in images (batch, C, height, width), from so many samples along y and along x."""
    result = []
    for number, x1, y1, x2, y2 in boxes:
        along = []
        for low, high, count, m, n in zip(
            (y1 * scale[0], x1 * scale[1]), (y2 * scale[0], x2 * scale[1]), bins, samples, x.shape[2:], strict=True
        ):
            at = low - 0.5 + (high - low) * (np.arange(count * m) + 0.5) / (count * m)
            along.append((np.clip(at, 0, n - 1), (at >= -1) & (at <= n)))
        (rows, down), (columns, right) = along
        mesh = np.meshgrid(rows, columns, indexing="ij")
        weights = np.outer(down, right)
        sampled = jnp.stack([map_coordinates(image, mesh, 1) for image in x[int(number)]]) * weights
        apart = sampled.reshape(-1, bins[0], samples[0], bins[1], samples[1])
        result.append(apart.mean((2, 4)))
    return jnp.stack(result)


def last(x, _, scale=(1.0, 1.0)):
    """The bins of the boxes, with channels last."""
    return jnp.moveaxis(averaged(jnp.moveaxis(x, -1, 1), BOXES, (1, 2), scale, (1, 1)), 1, -1)


def correlated(x, w):
    """Patches of 2x1, two rows apart, of columns that are one apart at most, with a row of zeros above."""
    x, w = jnp.pad(x, ((0, 0), (0, 0), (1, 0), (0, 0))), jnp.pad(w, ((0, 0), (0, 0), (1, 0), (1, 1)))
    pixels = jnp.stack([(x * w[..., j:j + 2]).sum(1) for j in range(3)], 1)
    return jnp.stack([pixels[:, :, 0] + pixels[:, :, 1], pixels[:, :, 2] + pixels[:, :, 3]], 2)[:, None]


SAMPLES: list[Sample] = [
    sample("roi_align", real(2, 1, 2, 3), fixed(*BOXES), output_size=(1, 2), spatial_scale=(1.0, 0.5), sampling_ratio=1,
           numeric=False, ref=lambda x, _: averaged(x, BOXES, (1, 2), (1.0, 0.5), (1, 1))),
    sample("box_averages", real(4, 1), fixed(*HALVES), images=(2, 1, 2), output_size=(1, 2), spatial_scale=(1.0, 1.0),
           sampling_ratio=1, numeric=False, ref=lambda x, _: x.reshape(2, 2, 1)),
    sample("box_averages_transpose", real(2, 2, 1), fixed(*HALVES), images=(2, 1, 2), output_size=(1, 2),
           spatial_scale=(1.0, 1.0), sampling_ratio=1, numeric=False, ref=lambda y, _: y.reshape(4, 1)),
    sample("roi_align", real(2, 2, 3, 1), fixed(*BOXES), output_size=(1, 2), sampling_ratio=1, channel_last=True,
           numeric=False, ref=last),
    sample("box_averages_transpose", real(2, 2, 1), fixed(*BOXES), images=(2, 2, 3), output_size=(1, 2),
           spatial_scale=(1.0, 0.5), sampling_ratio=1, numeric=False, ref=lambda y, _: jax.linear_transpose(
               lambda x: last(x, None, (1.0, 0.5)), jnp.zeros((2, 2, 3, 1)))(y[:, None])[0].reshape(12, 1)),
    sample("patch_correlation", real(1, 2, 3, 2), real(1, 2, 3, 2), patch=(2, 1), shift=(0, 1), patch_step=(2, 1),
           padding=(1, 0, 0, 0), ref=correlated),
    sample("patch_correlation", real(1, 1, 3, 2), real(1, 1, 3, 2), shift=(0, 2), shift_step=(1, 2), channel_last=True,
           orders=2, ref=lambda x, w: jnp.stack(
               [(x * jnp.pad(w, ((0, 0), (0, 0), (2, 2), (0, 0)))[:, :, j:j + 3]).sum(3) for j in (0, 2, 4)], 3
           )[..., None, :]),
]
