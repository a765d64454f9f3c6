"""nngrad: turns a computation into the graph of its gradients, to any order, on JAX."""

import sys as _sys
from inspect import isfunction as _isfunction
from typing import TYPE_CHECKING, Any

from backward_registry import MissingRule, register, registry, show_registry
from nngrad_command import __version__ as __version__

from . import cpu as _cpu  # noqa: F401  # which registers its passes
from . import functions as functions
from . import initializer as initializer
from . import nnabla as nnabla
from . import parameter as parameter
from . import parametric_functions as parametric_functions
from . import physics as physics
from . import random as random
from . import solvers as solvers
from .autodiff import Grad, grad
from .autodiff.custom_function import CustomFunction
from .context import (
    Context,
    auto_forward,
    context_scope,
    deterministic,
    device,
    get_auto_forward,
    get_current_context,
    get_extension_context,
    no_grad,
    set_auto_forward,
    set_default_context,
)
from .derivatives import (
    bilaplacian,
    curl,
    derivatives,
    differential_operator,
    diffusion,
    divergence,
    fisher,
    gauss_newton,
    hessian,
    hessian_diagonal,
    hvp,
    jacobian,
    jvp,
    laplacian,
    natural_gradient,
    nth_derivative,
    sparse_hessian,
    sparse_jacobian,
    sparsity,
    unbiased_square,
    vjp,
    vmap,
)
from .derivatives.implicit import Convergence, fixed_point, linear_solve, minimize, odeint, root
from .distributed import hosts as hosts
from .distributed.devices import mesh, shard
from .execution import executables, forward_all
from .execution.backward import backward
from .execution.passes import passes, unrolled
from .files.exporting import export, load_exported
from .files.graphs import load_graph, save_graph
from .files.parameter_files import load_parameters, save_parameters
from .functions.checkpoints import checkpoint
from .functions.custom_gradient import custom_gradient
from .graph import Function, NdArray, Variable
from .graph.messages import ImportHints as _ImportsLeadOn
from .graph.messages import no_attribute as _no_attribute
from .graph.signatures import explained as _explained
from .inspection import checks as checks
from .inspection import count, explain, find_nan, memory_report, show, show_passes, show_rewrites, source_locations
from .inspection import hooks as hooks
from .inspection import timing as timing
from .inspection.compilations import RecompilationWarning
from .inspection.debugging import debug
from .inspection.hooks import (
    FunctionHook,
    set_function_post_hook,
    set_function_pre_hook,
    unset_function_post_hook,
    unset_function_pre_hook,
)
from .inspection.lanczos import lanczos
from .inspection.viewing import draw, view
from .inspection.viewing import plots as plot
from .jax.compilation_cache import cache_compilations
from .jax.from_jax import from_jax
from .jax.to_jax import compile, to_jax
from .memory import LeastMemory, MemoryBudget, Segments, recompute
from .nnabla import formats as _formats  # noqa: F401 - for files
from .nnabla import links as _links  # noqa: F401 - methods of Variables
from .nnabla import names as _names_elsewhere  # noqa: F401 - for messages about missing names
from .parameter import (
    cast_parameters,
    clear_parameters,
    get_current_parameter_scope,
    get_parameter,
    get_parameter_or_create,
    get_parameters,
    parameter_scope,
    pop_parameter,
    set_parameter,
)
from .random import seed
from .rewrite.builder import simplify
from .rewrite.numbers import grad_end as GradEndFunction
from .solvers import (
    DynamicLossScale,
    set_solver_post_hook,
    set_solver_pre_hook,
    unset_solver_post_hook,
    unset_solver_pre_hook,
)
from .torch import from_torch
from .training import MovingAverage, train_step
from .training.checkpoints import Checkpointer
from .training.containers import ModuleDict, ModuleList, Parameter, Sequential
from .training.feeding import feed
from .training.mixed_precision import precision
from .training.modules import Module
from .training.runs import fit, training_log

__all__ = [
    "Checkpointer", "Context", "Convergence", "CustomFunction", "DynamicLossScale", "Function",
    "FunctionHook", "FunctionNode", "Grad", "GradEndFunction", "LeastMemory", "MemoryBudget", "MissingRule", "Module",
    "ModuleDict", "ModuleList", "MovingAverage", "NdArray", "Parameter", "PythonFunction", "RecompilationWarning",
    "Segments", "Sequential", "Variable", "auto_forward", "backward", "bilaplacian", "cache_compilations",
    "cast_parameters", "checkpoint", "checks", "clear_parameters", "compile", "context_scope", "count", "curl",
    "custom_gradient", "debug", "derivatives", "deterministic", "device", "differential_operator", "diffusion",
    "divergence", "draw", "executables", "explain", "export", "feed", "find_nan", "fisher", "fit", "fixed_point",
    "forward_all", "from_jax", "from_torch", "functions", "gauss_newton", "get_auto_forward", "get_current_context",
    "get_current_parameter_scope", "get_extension_context", "get_parameter", "get_parameter_or_create",
    "get_parameters", "grad", "hessian", "hessian_diagonal", "hooks", "hosts", "hvp", "initializer", "jacobian", "jvp",
    "lanczos", "laplacian", "linear_solve", "load_exported", "load_graph", "load_parameters", "memory_report",
    "mesh", "minimize", "natural_gradient", "no_grad", "nth_derivative", "odeint", "parameter_scope",
    "parametric_functions", "passes", "physics", "plot", "pop_parameter", "precision", "recompute", "register",
    "registry", "root", "save_graph", "save_parameters", "seed", "set_auto_forward", "set_default_context",
    "set_function_post_hook", "set_function_pre_hook", "set_parameter", "set_solver_post_hook", "set_solver_pre_hook",
    "shard", "show", "show_passes", "show_registry", "show_rewrites", "simplify", "solvers", "source_locations",
    "sparse_hessian", "sparse_jacobian", "sparsity", "timing", "to_jax", "train_step", "training_log",
    "unbiased_square", "unrolled", "unset_function_post_hook", "unset_function_pre_hook", "unset_solver_post_hook",
    "unset_solver_pre_hook", "view", "vjp", "vmap",
]  # fmt: skip


_FROM_NNABLA = ("FunctionNode", "PythonFunction")
"""Names that are loaded when they are asked for."""

if TYPE_CHECKING:
    from .nnabla import FunctionNode as FunctionNode
    from .nnabla import PythonFunction as PythonFunction
else:  # checkers of types say it themselves
    for _name in __all__:
        if _isfunction(_function := globals().get(_name)):
            _function = globals()[_name] = _explained(_function)
            _function.__module__, _function.__qualname__ = __name__, _name  # where pickle finds it
    parameter.load_parameters, parameter.save_parameters = load_parameters, save_parameters  # where nnabla has them

    def __dir__() -> list[str]:
        return [*__all__, "__version__"]

    def __getattr__(name: str) -> Any:
        if name in _FROM_NNABLA:
            return getattr(nnabla, name)
        raise _no_attribute(f"nngrad has no {name!r}", name, __all__)

    _sys.meta_path.append(_ImportsLeadOn)
