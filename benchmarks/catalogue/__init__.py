"""Single functions of the catalogue, forward and with gradients, beside the same function in JAX and PyTorch."""

from .table import run as run
