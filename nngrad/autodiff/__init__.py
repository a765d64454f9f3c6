"""A forward graph in, a gradient graph out."""

from ..execution.forward import evaluate, forward
from ..execution.interpret import run_function, run_functions
from ..functions.operators import operators
from ..graph import engine
from ..graph.spelling import spelling_checked
from ..remat import LeastMemory, MemoryBudget, Segments
from ..rewrite.builder import simplify
from ..rewrite.numbers import grad_end as GradEndFunction
from .backward import backward, backward_from
from .grad import grad
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

engine.install(
    evaluate=evaluate,
    run_function=run_function,
    run_functions=run_functions,
    forward=spelling_checked(forward),
    backward=spelling_checked(backward_from),
    operators=operators,
)
