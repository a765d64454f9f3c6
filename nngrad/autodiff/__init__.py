"""A forward graph in, a gradient graph out."""

from ..execution.forward import evaluate, forward
from ..execution.interpret import run_function, run_functions
from ..functions.operators import operators
from ..graph import engine
from .backward import backward, backward_from
from .grad import grad
from .walk import Grad

__all__ = ["Grad", "backward", "grad"]

engine.install(
    evaluate=evaluate,
    run_function=run_function,
    run_functions=run_functions,
    forward=forward,
    backward=backward_from,
    operators=operators,
)
