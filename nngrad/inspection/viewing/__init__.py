"""Visualisation of graphs: layouts, HTML pages and SVG drawings."""

from .draw import Drawing, draw
from .view import view

__all__ = ["Drawing", "draw", "view"]
