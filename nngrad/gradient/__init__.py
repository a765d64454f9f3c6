"""A forward graph in, a gradient graph out."""

from ..graph import rooms
from .backward import backward
from .grad import Grad, grad
from .intern import simplify
from .numbers import grad_end as GradEndFunction

__all__ = ["Grad", "GradEndFunction", "grad", "simplify"]

rooms.engine.backward = backward  # type: ignore[assignment, method-assign]
