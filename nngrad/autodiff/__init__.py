"""Differentiation: from a forward graph to a gradient graph."""

from ..functions import cells  # noqa: F401 - the operators of Variables and cells are provided
from ..graph import engine
from ..graph.engine import provide
from .bodies import body_gradient, body_tangent
from .grad import grad
from .walk import Grad

__all__ = ["Grad", "grad"]

provide(engine, {"body_gradient": body_gradient, "body_tangent": body_tangent})
