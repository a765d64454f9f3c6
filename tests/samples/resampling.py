"""Samples of the family `resampling`."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.ndimage import map_coordinates

from . import Sample, real, sample


def at(x, *positions, order=1):
    """`x` at positions along its last axes, linear between elements, and as the last element beyond."""
    count = len(positions)
    mesh = jnp.meshgrid(*map(jnp.asarray, positions), indexing="ij")
    images = x.reshape(-1, *x.shape[x.ndim - count:])
    y = jnp.stack([map_coordinates(image, mesh, order, mode="nearest") for image in images])
    return y.reshape(*x.shape[:x.ndim - count], *mesh[0].shape)


def cropped(x):
    """Positions -0.5, 0.5, 1.5 and 2.5 of three, with 7 outside."""
    return jnp.full((2, 4), 7.0).at[:, 1:3].set((x[:, :2] + x[:, 1:]) / 2)


def keys(distance, a):
    """The kernel of cubic convolution."""
    d = abs(distance)
    return (a + 2) * d**3 - (a + 3) * d**2 + 1 if d <= 1 else a * (d**3 - 5 * d**2 + 8 * d - 4)


INSIDE = np.array([keys(0.25, -0.5), keys(0.75, -0.5), keys(1.75, -0.5)])
"""The weights of three elements at the position 0.25 of the first, between which and the end is a fourth one."""
INSIDE = INSIDE / INSIDE.sum()
CUBIC = {"axes": (1,), "grids": ((1, 1.0, 0.25),), "mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": True}


SAMPLES: list[Sample] = [
    sample("interpolate", real(2, 4), scale=(1.5,), ref=lambda x: at(x, [0, 2 / 3, 4 / 3, 2, 8 / 3, 10 / 3])),
    sample("interpolate", real(2, 3, 4), output_size=(5, 2), half_pixel=True,
           ref=lambda x: jax.image.resize(x, (2, 5, 2), "linear", antialias=False)),
    sample("interpolate", real(3, 2, 1, 2), output_size=(4, 3, 2), align_corners=True, channel_last=True,
           ref=lambda x: jnp.moveaxis(at(jnp.moveaxis(x, -1, 0), [0, 2 / 3, 4 / 3, 2], [0, 0.5, 1], [0, 0]), 0, -1)),
    sample("interpolate", real(1, 3), scale=(2.0,), mode="cubic", half_pixel=True, ref=lambda x: jnp.stack([
        sum(keys(p - k, -0.75) * x[:, min(max(k, 0), 2)] for k in range(math.floor(p) - 1, math.floor(p) + 3))
        for p in (-0.25, 0.25, 0.75, 1.25, 1.75, 2.25)], 1)),
    sample("interpolate", real(2, 5), output_size=(3,), mode="area",
           ref=lambda x: jnp.stack([x[:, :2].mean(1), x[:, 1:4].mean(1), x[:, 3:].mean(1)], 1)),
    sample("interpolate", real(2, 3, 4), output_size=(5, 2), mode="nearest", half_pixel_for_nn=True,
           ref=lambda x: jax.image.resize(x, (2, 5, 2), "nearest")),
    sample("onnx_resize", real(1, 4, 5), scales=(1.0, 2.0, 0.8), mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1,
           ref=lambda x: jax.image.resize(x, (1, 8, 4), "cubic", antialias=False)),
    sample("onnx_resize", real(2, 3), sizes=(2, 4), mode="linear", roi=(0.0, -0.25, 1.0, 1.25),
           coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=7.0, ref=cropped),
    sample("resample", real(2, 3), axes=(1,), grids=((3, 1.0, -0.75),), mode="linear", bounded=True,
           ref=lambda x: jnp.stack([0 * x[:, 0], 0.75 * x[:, 0] + 0.25 * x[:, 1], 0.75 * x[:, 1] + 0.25 * x[:, 2]], 1)),
    sample("resample", real(3, 2), axes=(0,), grids=((2, 2.0, -0.5),), mode="nearest", rounding="round_prefer_ceil",
           ref=lambda x: jnp.stack([x[0], x[2]])),
    sample("resample_transpose", real(2, 2), shape=(2, 3), axes=(1,), grids=((2, 1.0, 0.25),), mode="linear",
           ref=lambda y: jnp.stack([0.75 * y[:, 0], 0.25 * y[:, 0] + 0.75 * y[:, 1], 0.25 * y[:, 1]], 1)),
    sample("resample", real(2, 3), **CUBIC, ref=lambda x: (x * INSIDE).sum(1, keepdims=True)),
    sample("resample_transpose", real(2, 1), shape=(2, 3), **CUBIC, ref=lambda y: y * INSIDE),
    sample("resample_transpose", real(2, 3), shape=(2, 3), axes=(1,), grids=((3, 1.0, -0.5),), mode="nearest",
           rounding="round_prefer_ceil", bounded=True, ref=lambda y: y.at[:, 0].set(0)),
    sample("onnx_resize", real(1, 2), sizes=(1, 4), nearest_mode="ceil", orders=1, ref=lambda x: x[:, [0, 1, 1, 1]]),
]
