"""nngrad: gradient graphs on JAX."""

from . import graph, functions, execution, gradient  # noqa: I001
from .graph import NdArray, Variable
from .gradient import Grad, grad

__all__ = ["Grad", "NdArray", "Variable", "grad"]
