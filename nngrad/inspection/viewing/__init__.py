"""Graphs to look at: where each function lies in a picture, pages, files and pictures made of that, and plots."""

from . import plots as plots
from .draw import Drawing, draw
from .view import view

__all__ = ["Drawing", "draw", "plots", "view"]
