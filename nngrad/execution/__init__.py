"""A graph in, arrays out."""

from typing import Any

from ..graph import Variable
from .compiled import executables
from .convert import CompiledFunction, compile, to_jax
from .forward import forward

__all__ = ["CompiledFunction", "compile", "executables", "forward_all", "to_jax"]


def forward_all(variables: list[Variable], clear_buffer: bool = False, **hooks: Any) -> None:
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
    forward(variables, **hooks)
