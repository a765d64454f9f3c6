"""Visualisation of graphs: layouts, HTML pages, SVG drawings, files for other viewers, and plots."""

from . import plots as plots
from .draw import Drawing, draw
from .view import view

__all__ = ["Drawing", "draw", "plots", "view"]
