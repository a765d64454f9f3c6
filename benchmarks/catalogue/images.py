"""Functions of images: sizes, warps and regions."""

from __future__ import annotations

from typing import Any

import jax
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
