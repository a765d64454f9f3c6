"""A forward graph in, a gradient graph out."""

from ..graph import rooms
from .backward import backward
from .canonical import grad_end as GradEndFunction
from .grad import Grad, grad
from .intern import simplify

__all__ = ["Grad", "GradEndFunction", "grad", "simplify"]

rooms.engine.backward = backward  # type: ignore[assignment, method-assign]
