"""Helpers for matplotlib figures."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#2a6fbb", "#d9722e", "#9aa0a6"


def figure(width: float, height: float) -> Figure:
    """An empty figure of a given size in inches."""
    return Figure(figsize=(width, height), layout="constrained", dpi=90)


def draw_tiled(axes: Any, images: np.ndarray[Any, Any], title: str = "", columns: int = 10) -> None:
    """Draw square images of shape (n, pixels), with pixels in [-1, 1], side by side, with a margin around each."""
    rows, side = len(images) // columns, round(images.shape[1] ** 0.5)
    grid = images[: rows * columns].reshape(rows, columns, side, side)
    grid = np.pad(grid, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-1.0)
    tiled = grid.transpose(0, 2, 1, 3).reshape(rows * (side + 2), columns * (side + 2))
    axes.imshow(tiled, cmap="gray_r", vmin=-1, vmax=1, interpolation="nearest")
    axes.set(title=title)
    axes.set_axis_off()
