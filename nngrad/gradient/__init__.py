"""A forward graph in, a gradient graph out."""

from .grad import Grad, GradEndFunction, grad
from .intern import simplify

__all__ = ["Grad", "GradEndFunction", "grad", "simplify"]
