"""Differentiation: from a forward graph to a gradient graph."""

from ..execution.interpret import run_function, run_functions
from ..execution.reading import evaluate, forget_runs, forward
from ..functions import cells  # noqa: F401 - the operators of Variables and cells are provided
from ..graph import engine
from ..graph.engine import provide
from .backward import backward, backward_from
from .bodies import body_batched, body_gradient, body_tangent
from .grad import grad
from .vmap import vmap
from .walk import Grad

__all__ = ["Grad", "backward", "grad", "vmap"]

provide(engine, {
    "evaluate": evaluate, "forget": forget_runs, "run_function": run_function, "run_functions": run_functions,
    "forward": forward, "backward": backward_from,
    "body_gradient": body_gradient, "body_tangent": body_tangent, "body_batched": body_batched,
})  # fmt: skip
