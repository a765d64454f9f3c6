"""Samples of the family `warping`."""

import jax.numpy as jnp
import numpy as np
from jax.scipy.ndimage import map_coordinates

from . import Sample, between, fixed, real, sample


def warped(x, grid, mode, order=1, aligned=False):
    """Each channel of x (batch, C, *sizes) sampled at the places of a grid, in JAX's own way."""
    sizes = x.shape[2:]
    at = [
        (grid[..., -1 - d] + 1) * (n - 1) / 2 if aligned else ((grid[..., -1 - d] + 1) * n - 1) / 2
        for d, n in enumerate(sizes)
    ]
    return jnp.stack([
        jnp.stack([map_coordinates(channel, [a[b] for a in at], order, mode) for channel in x[b]])
        for b in range(x.shape[0])
    ])


def flowed(x, flow):
    y, x_ = jnp.meshgrid(jnp.arange(x.shape[2]), jnp.arange(x.shape[3]), indexing="ij")
    return jnp.stack([map_coordinates(x[0, 0], [y + flow[0, 1], x_ + flow[0, 0]], 1, "nearest")])[None]


def affine(theta, width=2 / 3, height=0.5):
    """The positions of two rows and three columns, between the edges."""
    points = np.array([[[x, y, 1] for x in (-width, 0, width)] for y in (-height, height)])
    return jnp.einsum("bij,hwj->bhwi", theta, points)


def bounced(x):
    """How far in its cell a position is, if the image of three pixels is turned round at its edges."""
    period = jnp.mod(x, 4)
    inside = jnp.where(period < 2, period, 4 - period)
    return inside - jnp.where(inside < 1, 0, 1)


def convolved(x, grid):
    """Cubic convolution of one image whose edges are repeated, by Keys' kernel at all distances."""
    def kernel(d, a=-0.75):
        d = jnp.abs(d)
        near = (a + 2) * d**3 - (a + 3) * d**2 + 1
        return jnp.where(d < 1, near, jnp.where(d < 2, a * (d**3 - 5 * d**2 + 8 * d - 4), 0))

    wide = jnp.pad(x[0, 0], 4, mode="edge")
    at = [((grid[0, ..., 1 - d] + 1) * n - 1) / 2 + 4 for d, n in enumerate(x.shape[2:])]
    weights = [kernel(p[..., None] - jnp.arange(n)) for p, n in zip(at, wide.shape, strict=True)]
    return jnp.einsum("hwi,hwj,ij->hw", *weights, wide)[None, None]


SAMPLES: list[Sample] = [
    sample("cell_fraction", real(2, 5), size=3, padding="mirror", ref=bounced),
    sample("cell_fraction", fixed(-2.3, -0.2, 0.3, 1.7, 3.2), size=3, padding="repeat",
           ref=lambda x: jnp.clip(x, 0, 2) - jnp.clip(jnp.floor(x), 0, 1)),
    sample("cell_slope", fixed(-4.2, -1.2, -0.3, 0.3, 1.3, 2.2, 3.2), size=3, padding="reflect", orders=0,
           ref=lambda x: jnp.array([1.0, -1.0, 0.0, 1.0, 1.0, 0.0, -1.0])),
    sample("cell_indices", fixed([[0.5, 0.5], [2.5, -0.5], [-1.5, 7.0]]), sizes=(3, 2), padding="zero", orders=0,
           ref=lambda x: jnp.array([[[0, -1, -1], [1, -1, -1], [3, 2, -1], [4, -1, -1]]])),
    sample("affine_grid", real(2, 2, 3), size=(2, 3), ref=affine),
    sample("warp_by_grid", real(1, 2, 2, 3), between(-1.3, 1.3, 1, 2, 2, 2), numeric=False,
           ref=lambda x, grid: warped(x, grid, "constant")),
    sample("warp_by_grid", real(1, 2, 3, 2, 1), between(-1.3, 1.3, 1, 1, 1, 2, 3), padding_mode="repeat",
           channel_last=True, numeric=False,
           ref=lambda x, grid: jnp.moveaxis(warped(jnp.moveaxis(x, -1, 1), grid, "nearest"), 1, -1)),
    sample("warp_by_grid", real(1, 1, 2, 3), between(-2, 2, 1, 1, 3, 2), padding_mode="reflect", align_corners=True,
           numeric=False, ref=lambda x, grid: warped(x, grid, "mirror", aligned=True)),
    sample("warp_by_grid", real(1, 1, 2, 3), between(-1.3, 1.3, 1, 1, 3, 2), mode="nearest", numeric=False,
           ref=lambda x, grid: warped(x, grid, "constant", order=0)),
    sample("cell_indices", fixed([[0.5, 0.5], [2.5, -0.5]]), sizes=(3, 1), padding="repeat", mode="cubic", orders=0,
           ref=lambda x: jnp.tile(jnp.array([[0, 1], [0, 2], [1, 2], [2, 2]]), (4, 1))[None]),
    sample("warp_by_grid", real(1, 1, 3, 4), between(-1.5, 1.5, 1, 2, 2, 2), mode="cubic", padding_mode="repeat",
           numeric=False, ref=convolved),
    sample("warp_by_flow", real(1, 1, 2, 3), between(-1.5, 1.5, 1, 2, 2, 3), numeric=False, ref=flowed),
    sample("affine_grid", real(1, 2, 3), size=(2, 3), align_corners=True, orders=2,
           ref=lambda theta: affine(theta, 1.0, 1.0)),
]
