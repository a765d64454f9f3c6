"""A forward graph in, a gradient graph out."""

from ..execution.forward import evaluate, forward
from ..execution.interpret import run_function, run_functions
from ..functions.operators import operators
from ..graph import engine
from ..graph.spelling import spelling_checked
from .backward import backward, backward_from
from .bodies import body_gradient, body_tangent
from .grad import grad
from .walk import Grad

__all__ = ["Grad", "backward", "grad"]

engine.install(
    evaluate=evaluate,
    run_function=run_function,
    run_functions=run_functions,
    forward=spelling_checked(forward),
    backward=spelling_checked(backward_from, "backward"),
    body_gradient=body_gradient,
    body_tangent=body_tangent,
    operators=operators,
)
