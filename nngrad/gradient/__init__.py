"""A forward graph in, a gradient graph out."""

from ..graph import rooms
from .backward import backward, backward_from
from .grad import grad
from .intern import simplify
from .numbers import grad_end as GradEndFunction
from .recompute import LeastMemory, MemoryBudget, Segments
from .walk import Grad

__all__ = [
    "Grad",
    "GradEndFunction",
    "LeastMemory",
    "MemoryBudget",
    "Segments",
    "backward",
    "grad",
    "simplify",
]

rooms.engine.backward = backward_from  # type: ignore[assignment, method-assign]
