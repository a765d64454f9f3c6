"""Figures of matplotlib's, and what they are as PNG files."""

from __future__ import annotations

import io
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def figure(width: float, height: float) -> Figure:
    """An empty figure, of a size in inches."""
    return Figure(figsize=(width, height), layout="constrained", dpi=90)


def as_png(drawn: Any) -> bytes:
    """The content of a PNG file with a figure."""
    picture = io.BytesIO()
    FigureCanvasAgg(drawn).print_png(picture)
    return picture.getvalue()
