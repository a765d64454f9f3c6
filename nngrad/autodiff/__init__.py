"""A forward graph in, a gradient graph out."""

from ..execution.forward import forward
from ..execution.interpret import run_function, run_functions
from ..execution.reading import evaluate, forget
from ..functions import cells  # noqa: F401 - the operators of Variables and cells are provided
from ..graph import engine
from .backward import backward, backward_from
from .bodies import body_gradient, body_tangent
from .body_batching import body_batched
from .grad import grad
from .vmap import vmap
from .walk import Grad

__all__ = ["Grad", "backward", "grad", "vmap"]

engine.evaluate, engine.forget = evaluate, forget
engine.run_function, engine.run_functions = run_function, run_functions
engine.forward, engine.backward = forward, backward_from
engine.body_gradient, engine.body_tangent, engine.body_batched = body_gradient, body_tangent, body_batched
