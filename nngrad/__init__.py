"""nngrad: turns a computation into the graph of its gradients, to any order, on JAX."""

from backward_registry import register, registry, show_registry

from . import functions as functions
from .context import (
    Context,
    auto_forward,
    context_scope,
    get_auto_forward,
    get_current_context,
    get_extension_context,
    no_grad,
    set_auto_forward,
    set_default_context,
)
from .execution import compile, executables, forward_all, to_jax
from .gradient import Grad, GradEndFunction, grad, simplify
from .graph import Function, NdArray, Variable
from .python_function import PythonFunction

__all__ = [
    "Context",
    "Function",
    "Grad",
    "GradEndFunction",
    "NdArray",
    "PythonFunction",
    "Variable",
    "auto_forward",
    "compile",
    "context_scope",
    "executables",
    "forward_all",
    "get_auto_forward",
    "get_current_context",
    "get_extension_context",
    "grad",
    "no_grad",
    "register",
    "registry",
    "set_auto_forward",
    "set_default_context",
    "show_registry",
    "simplify",
    "to_jax",
]
