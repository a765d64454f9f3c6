"""A graph in, arrays out."""

from typing import Any, Unpack

from ..graph import Variable, rooms
from ..graph.rooms import ForwardOptions
from ..graph.spelling import spelling_checked
from .compiled import executables
from .convert import CompiledFunction, compile, to_jax
from .forward import evaluate, forward
from .interpret import run_function, run_functions

__all__ = ["CompiledFunction", "compile", "executables", "forward_all", "to_jax"]


def forward_all(variables: list[Variable], clear_buffer: bool = False, **hooks: Unpack[ForwardOptions]) -> None:
    """`forward()` of several Variables at once: one snapshot, one executable, what they share computed once.

    Args:
        variables: What to compute.
        clear_buffer: Accepted for nnabla's sake.
        hooks: `function_pre_hook` and `function_post_hook`, as in `Variable.forward`.
    """
    variables = list(variables)
    for i, y in enumerate(variables):
        if not isinstance(y, Variable):
            raise TypeError(f"variables[{i}]: expected a Variable, got {type(y).__name__}")
    rooms.engine.forward(variables, **hooks)


class _Engine:
    """What the graph asks of this room and, for `backward`, of the gradient builder."""

    evaluate = staticmethod(evaluate)
    forward = staticmethod(spelling_checked(forward))
    run_function = staticmethod(run_function)
    run_functions = staticmethod(run_functions)
    backward: Any


rooms.engine = _Engine()
