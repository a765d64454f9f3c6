"""Functions of images: sizes, warps and regions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.ndimage import map_coordinates

import nngrad.functions as F

from .case import Case


def interpolate(smoke: bool) -> Case:
    """Images at twice their size, linear between pixels."""
    shape = (1, 2, 4, 4) if smoke else (8, 16, 64, 64)
    size = (2 * shape[2], 2 * shape[3])

    def in_torch(x: Any) -> Any:
        import torch

        return torch.nn.functional.interpolate(x, size=size, mode="bilinear", align_corners=False)

    return Case(
        title=f"interpolate {shape} to {size}, linear",
        arrays=[np.random.default_rng(0).standard_normal(shape).astype("f")],
        in_nngrad=lambda x: F.interpolate(x, output_size=size, half_pixel=True),
        in_jax={"jax.image.resize": lambda x: jax.image.resize(x, (*shape[:2], *size), "linear")},
        in_torch=in_torch,
        differentiated=(0,),
    )


def warp_by_grid(smoke: bool) -> Case:
    """Images sampled at random positions."""
    shape = (1, 2, 4, 4) if smoke else (8, 16, 64, 64)
    height, width = shape[2:]
    rng = np.random.default_rng(0)

    def in_torch(x: Any, grid: Any) -> Any:
        import torch

        return torch.nn.functional.grid_sample(x, grid, align_corners=False)

    def in_jax(x: Any, grid: Any) -> Any:
        places = [((grid[..., 1] + 1) * height - 1) / 2, ((grid[..., 0] + 1) * width - 1) / 2]
        each = jax.vmap(lambda channel, *at: map_coordinates(channel, at, 1), (0, None, None))
        return jax.vmap(each)(x, *places)

    return Case(
        title=f"warp_by_grid {shape}, linear, zeros outside",
        arrays=[rng.standard_normal(shape).astype("f"), rng.uniform(-1, 1, (shape[0], *shape[2:], 2)).astype("f")],
        in_nngrad=F.warp_by_grid,
        in_jax={"map_coordinates": in_jax},
        in_torch=in_torch,
        differentiated=(0, 1),
    )


def roi_align(smoke: bool) -> Case:
    """Regions of feature maps; in the peers, which have no such function, as samples of a grid in each box."""
    shape, boxes, bins = ((1, 2, 4, 4), 2, 2) if smoke else ((2, 64, 50, 50), 128, 7)
    batch, _, height, width = shape
    rng = np.random.default_rng(0)
    corner, size = rng.uniform(0, 0.6, (boxes, 2)), rng.uniform(0.1, 0.4, (boxes, 2))
    ends = np.concatenate([corner, corner + size], 1) * [width, height, width, height]
    images = np.sort(rng.integers(0, batch, boxes))
    places = (np.arange(2 * bins) + 0.5) / (2 * bins)

    def along(low: Any, high: Any) -> Any:
        return low[:, None] + (high - low)[:, None] * places - 0.5

    rows, columns = along(ends[:, 1], ends[:, 3]), along(ends[:, 0], ends[:, 2])
    mesh = np.stack(np.broadcast_arrays(rows[:, :, None], columns[:, None, :]), 1).clip(0, height - 1).astype("f")

    def in_jax(x: Any) -> Any:
        each = jax.vmap(lambda channel, at: map_coordinates(channel, list(at), 1), (0, None))
        samples = jax.vmap(lambda image, at: each(x[image], at))(jnp.asarray(images), jnp.asarray(mesh))
        return samples.reshape(boxes, -1, bins, 2, bins, 2).mean((3, 5))

    def in_torch(x: Any) -> Any:
        import torch

        scaled = torch.tensor((2 * mesh[:, ::-1] / np.array([width - 1, height - 1])[:, None, None] - 1).astype("f"))
        grid = scaled.permute(0, 2, 3, 1)
        samples = torch.nn.functional.grid_sample(x[torch.tensor(images)], grid, align_corners=True)
        return torch.nn.functional.avg_pool2d(samples, 2)

    numbered = np.concatenate([images[:, None], ends], 1).astype("f")
    return Case(
        title=f"roi_align {shape}, {boxes} boxes, {bins}x{bins} bins of 2x2 samples",
        arrays=[rng.standard_normal(shape).astype("f")],
        in_nngrad=lambda x: F.roi_align(x, numbered, (bins, bins), sampling_ratio=2),
        in_jax={"map_coordinates": in_jax},
        in_torch=in_torch,
        differentiated=(0,),
        tolerance=1e-3,
    )
