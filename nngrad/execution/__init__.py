"""Execution: from a graph to arrays."""

from typing import Any, Unpack

from ..graph import Variable, engine
from ..graph.engine import ForwardOptions, forward_named, provide
from ..graph.messages import raise_misspelt
from .compiled import executables
from .interpret import run_functions
from .reading import evaluate, forget_runs, forward

__all__ = [
    "executables", "forward_all",
]

provide(engine, {
    "evaluate": evaluate, "forget": forget_runs, "run_functions": run_functions,
    "forward": forward,
})  # fmt: skip


def forward_all(
    variables: list[Variable], clear_buffer: bool = False, clear_no_need_grad: bool = False,
    *placed: Any,
    **hooks: Unpack[ForwardOptions],
) -> None:  # fmt: skip
    """Run `forward()` of several Variables at once: one snapshot and one executable, with common parts computed once.

    Args:
        variables: The Variables to compute.
        clear_buffer: Accepted for nnabla's sake.
        clear_no_need_grad: The same.
        placed: The hooks by position, in this order.
        hooks: `function_pre_hook` and `function_post_hook`, as in `Variable.forward`.
    """
    variables = list(variables)
    for i, y in enumerate(variables):
        if not isinstance(y, Variable):
            raise TypeError(f"variables[{i}]: expected a Variable, got {type(y).__name__}")
    try:
        engine.forward(variables, **forward_named(placed, hooks))
    except TypeError:
        raise_misspelt("forward", hooks, ForwardOptions)
        raise
