"""Functions of images: sizes, warps and regions."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

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
