"""A forward graph in, a gradient graph out."""

from ..execution.forward import forward
from ..execution.interpret import run_function, run_functions
from ..execution.reading import evaluate
from ..functions.operators import operators
from ..graph import engine
from .backward import backward, backward_from
from .bodies import body_gradient, body_tangent
from .grad import grad
from .walk import Grad

__all__ = ["Grad", "backward", "grad"]

engine.install(
    evaluate=evaluate,
    run_function=run_function,
    run_functions=run_functions,
    forward=forward,
    backward=backward_from,
    body_gradient=body_gradient,
    body_tangent=body_tangent,
    operators=operators,
)
