"""Execution: from a graph to arrays."""

from ..graph import Variable, engine
from ..graph.engine import Hook, provide
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
    function_pre_hook: Hook = None, function_post_hook: Hook = None,
) -> None:  # fmt: skip
    """Run `forward()` of several Variables at once: one snapshot and one executable, with common parts computed once.

    Args:
        variables: The Variables to compute.
        clear_buffer: Accepted for nnabla's sake.
        clear_no_need_grad: The same.
        function_pre_hook: Called with each Function before it runs, as in `Variable.forward`.
        function_post_hook: The same, after it has run.
    """
    variables = list(variables)
    for i, y in enumerate(variables):
        if not isinstance(y, Variable):
            raise TypeError(f"variables[{i}]: expected a Variable, got {type(y).__name__}")
    engine.forward(variables, function_pre_hook, function_post_hook)
