"""A forward graph in, a gradient graph out."""

from ..graph import rooms
from .backward import backward
from .grad import Grad, GradEndFunction, grad
from .intern import simplify

__all__ = ["Grad", "GradEndFunction", "grad", "simplify"]

rooms.engine.backward = backward  # type: ignore[method-assign]
