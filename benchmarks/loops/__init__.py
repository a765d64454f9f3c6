"""Loops and implicit functions: first result, step and temporaries, beside the same computation in JAX and PyTorch."""

from .table import run as run
