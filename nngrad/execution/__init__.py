"""A graph in, arrays out."""

from ..graph import rooms
from .compiled import executables
from .forward import evaluate, forward
from .interpret import run_function

__all__ = ["executables", "forward"]


class _Engine:
    """What the graph asks of this room."""

    evaluate = staticmethod(evaluate)
    forward = staticmethod(forward)
    run_function = staticmethod(run_function)


rooms.engine = _Engine()  # type: ignore[assignment]
