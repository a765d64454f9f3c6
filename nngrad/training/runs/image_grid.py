"""Images tiled into one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Images = NDArray[Any]


def tiled(data: Images, padsize: int = 1, padval: float = 0) -> Images:
    """Implements `nngrad.monitor.tile_images`."""
    if data.ndim != 4:
        raise ValueError(f"data: expected shape (N, C, H, W), got {data.shape}")
    side = math.isqrt(max(len(data) - 1, 0)) + 1 if len(data) else 0
    padding = (0, side**2 - len(data)), (0, 0), (0, padsize), (0, padsize)
    cells = np.pad(data, padding, constant_values=padval)
    n, channels, height, width = side, *cells.shape[1:]
    picture = cells.reshape(n, n, channels, height, width).transpose(0, 3, 1, 4, 2)
    picture = picture.reshape(n * height, n * width, channels)
    return picture[..., 0] if channels == 1 else picture
