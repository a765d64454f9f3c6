"""A forward graph in, a gradient graph out."""

from ..execution.forward import forward
from ..execution.interpret import run_function, run_functions
from ..execution.reading import evaluate, forget
from ..functions.cells import cell_methods
from ..functions.methods import methods
from ..functions.operators import operators
from ..graph import engine
from ..remat.policies import recomputed
from . import mapped_rule  # noqa: F401 - the rule is entered
from .backward import backward, backward_from
from .bodies import body_gradient, body_tangent
from .body_batching import body_batched
from .grad import grad
from .vmap import vmap
from .walk import Grad

__all__ = ["Grad", "backward", "grad", "vmap"]

engine.install(
    evaluate=evaluate,
    run_function=run_function,
    run_functions=run_functions,
    forget=forget,
    forward=forward,
    backward=backward_from,
    body_gradient=body_gradient,
    body_tangent=body_tangent,
    body_batched=body_batched,
    methods={**operators, **methods, "recompute": recomputed},
    cell_methods=cell_methods,
)
