"""Pictures of the demo's results, as PNG files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from ...files.replacing import write_whole
from .gan import SIDE, Array, Record

BLUE, ORANGE, GREY = "#2a6fbb", "#d9722e", "#9aa0a6"


def tiled(images: Array, columns: int = 10) -> Array:
    """Images of shape (n, 64) side by side, with a margin around each, as one image."""
    rows = len(images) // columns
    grid = images[: rows * columns].reshape(rows, columns, SIDE, SIDE)
    grid = np.pad(grid, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-1.0)
    return grid.transpose(0, 2, 1, 3).reshape(rows * (SIDE + 2), columns * (SIDE + 2))


def draw_digits(generated: Array, real: Array, path: Path) -> None:
    """Ten by ten generated digits beside ten by ten real ones."""
    figure = Figure(figsize=(8, 4.2), layout=ConstrainedLayoutEngine(wspace=0.06), dpi=110)
    panels = (generated, "generated"), (real, "real")
    for axes, (images, title) in zip(figure.subplots(1, 2), panels, strict=True):
        axes.imshow(tiled(images), cmap="gray_r", vmin=-1, vmax=1, interpolation="nearest")
        axes.set_title(title)
        axes.set_axis_off()
    _save(figure, path)


def draw_curves(records: Sequence[Record], path: Path) -> None:
    """The critic's estimate of the distance and its mean gradient norm, over the steps."""
    steps = [r.step for r in records]
    figure = Figure(figsize=(8, 3.2), layout="constrained", dpi=110)
    left, right = figure.subplots(1, 2)
    _curve(left, steps, [r.distance for r in records], BLUE, "Wasserstein estimate")
    _curve(left, steps, [r.loss for r in records], ORANGE, "critic's loss")
    left.axhline(0.0, color=GREY, linewidth=0.8)
    left.set_title("distance of generated from real digits")
    left.legend(frameon=False)
    right.axhline(1.0, color=GREY, linewidth=0.8)
    _curve(right, steps, [r.slope for r in records], BLUE, "")
    right.set_title("mean gradient norm of the critic")
    right.set_ylim(bottom=0.0)
    _save(figure, path)


def _curve(axes: Any, steps: Sequence[int], values: Sequence[float], color: str, label: str) -> None:
    """One curve: what was measured, faintly, and its running mean."""
    axes.plot(steps, values, color=color, alpha=0.25, linewidth=0.8)
    axes.plot(steps, running_mean(values), color=color, linewidth=1.6, label=label)
    axes.set_xlabel("steps of the generator")
    axes.set_xscale("symlog", linthresh=1.0)
    axes.spines[["top", "right"]].set_visible(False)


def running_mean(values: Sequence[float]) -> Array:
    """The mean over a window around each value: a share of what came before it, as suits a logarithmic axis."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    half = np.minimum(at // 8, at[::-1])
    means: Array = (sums[at + half + 1] - sums[at - half]) / (2 * half + 1)
    return means


def picture_of(generated: Array) -> Figure:
    """Ten by ten generated digits."""
    figure = Figure(figsize=(4, 4), layout="constrained", dpi=110)
    axes = figure.add_subplot()
    axes.imshow(tiled(generated), cmap="gray_r", vmin=-1, vmax=1, interpolation="nearest")
    axes.set_axis_off()
    return figure


def as_png(figure: Figure) -> bytes:
    """The content of a PNG file with a figure."""
    picture = io.BytesIO()
    FigureCanvasAgg(figure).print_png(picture)
    return picture.getvalue()


def _save(figure: Figure, path: Path) -> None:
    write_whole(path, as_png(figure))
