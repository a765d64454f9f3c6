"""Laplacians beside folx: time, first result, arithmetic and temporaries of what is compiled."""

from .table import run as run
