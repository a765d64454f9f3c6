"""nngrad: turns a computation into the graph of its gradients, to any order, on JAX.

What builds graphs, differentiates them and runs them is imported here. All other packages are imported when one of
their names is asked for.
"""

import sys as _sys
from importlib import import_module as _import_module
from inspect import isfunction as _isfunction
from os import environ as _environ
from typing import TYPE_CHECKING, Any

from backward_registry import MissingRule, register, registry, show_registry
from nngrad_command import __version__ as __version__

from . import functions as functions
from . import random as random
from .autodiff import Grad, grad
from .autodiff.custom_function import CustomFunction
from .derivatives import (
    bilaplacian,
    derivatives,
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
    vjp,
    vmap,
)
from .execution import executables, forward_all
from .execution.backward import backward
from .execution.passes import passes
from .functions.checkpoints import checkpoint
from .functions.custom_gradient import custom_gradient
from .graph import Function, NdArray, Variable
from .graph import engine as _engine
from .graph.engine import is_provided_by as _is_provided_by
from .graph.engine import is_there as _is_there
from .graph.messages import ImportHints as _ImportHints
from .graph.messages import no_attribute as _no_attribute
from .graph.options import is_heard_by as _is_heard_by
from .graph.placement import Placement as _Placement
from .graph.signatures import explained as _explained
from .random import seed
from .rewrite.builder import simplify
from .rewrite.numbers import grad_end as GradEndFunction

__all__ = [
    "Checkpointer", "Context", "Convergence", "CustomFunction", "DynamicLossScale", "Function",
    "FunctionHook", "Grad", "GradEndFunction", "LeastMemory", "MemoryBudget", "MissingRule", "Module",
    "ModuleDict", "ModuleList", "MovingAverage", "NdArray", "Parameter", "RecompilationWarning",
    "Segments", "Sequential", "Variable", "auto_forward", "backward", "bilaplacian", "cache_compilations",
    "checkpoint", "checks", "clear_parameters", "compile", "context_scope", "count",
    "custom_gradient", "debug", "derivatives", "deterministic", "device",
    "divergence", "draw", "executables", "explain", "export", "feed", "find_nan", "fisher", "fit", "fixed_point",
    "forward_all", "from_jax", "from_torch", "functions", "gauss_newton", "get_auto_forward", "get_current_context",
    "get_current_parameter_scope", "get_extension_context", "get_parameter", "get_parameter_or_create",
    "get_parameters", "grad", "hessian", "hessian_diagonal", "hooks", "hosts", "hvp", "initializer", "jacobian", "jvp",
    "lanczos", "laplacian", "linear_solve", "load_exported", "load_parameters", "memory_report",
    "mesh", "minimize", "natural_gradient", "no_grad", "nth_derivative", "odeint", "parameter_scope",
    "parametric_functions", "passes", "pop_parameter", "precision", "recompute", "register",
    "registry", "root", "save_parameters", "seed", "set_auto_forward", "set_default_context",
    "set_function_post_hook", "set_function_pre_hook", "set_parameter",
    "shard", "show", "show_passes", "show_registry", "show_rewrites", "simplify", "solvers", "source_locations",
    "sparse_hessian", "sparse_jacobian", "sparsity", "to_jax", "train_step", "training_log",
    "unset_function_post_hook", "unset_function_pre_hook", "view", "vjp", "vmap",
]  # fmt: skip

_MODULES = {
    "checks": "inspection.checks", "hooks": "inspection.hooks", "hosts": "parallel.hosts",
    "initializer": "initializer", "jax": "jax", "nnabla": "nnabla", "parameter": "parameter",
    "parametric_functions": "parametric_functions", "solvers": "solvers",
    "torch": "torch",
}  # fmt: skip
"""Modules that are imported when they are asked for."""

_ELSEWHERE = {
    "compilations": ("RecompilationWarning",),
    "context": (
        "Context", "auto_forward", "context_scope", "deterministic", "device", "get_auto_forward",
        "get_current_context", "get_extension_context", "no_grad", "set_auto_forward", "set_default_context",
    ),
    "derivatives.implicit": ("Convergence", "fixed_point", "linear_solve", "minimize", "odeint", "root"),
    "parallel.devices.mesh": ("mesh", "shard"),
    "files.exporting.export": ("export",),
    "files.exporting.exported": ("load_exported",),
    "files.parameter_files": ("load_parameters", "save_parameters"),
    "inspection": (
        "count", "explain", "find_nan", "memory_report", "show", "show_passes", "show_rewrites", "source_locations",
    ),
    "inspection.debugging": ("debug",),
    "inspection.hooks": (
        "FunctionHook", "set_function_post_hook", "set_function_pre_hook", "unset_function_post_hook",
        "unset_function_pre_hook",
    ),
    "inspection.lanczos": ("lanczos",),
    "inspection.viewing.draw": ("draw",),
    "inspection.viewing.view": ("view",),
    "jax.compilation_cache": ("cache_compilations",),
    "jax.from_jax": ("from_jax",),
    "jax.to_jax": ("compile", "to_jax"),
    "memory": ("LeastMemory", "MemoryBudget", "Segments", "recompute"),
    "parameter": (
        "clear_parameters", "get_current_parameter_scope", "get_parameter",
        "get_parameter_or_create", "get_parameters", "parameter_scope", "pop_parameter", "set_parameter",
    ),
    "solvers": ("DynamicLossScale",),
    "torch": ("from_torch",),
    "training.checkpoints": ("Checkpointer",),
    "training.containers": ("ModuleDict", "ModuleList", "Parameter", "Sequential"),
    "training.feeding": ("feed",),
    "training.mixed_precision": ("precision",),
    "training.modules": ("Module",),
    "training.moving_average": ("MovingAverage",),
    "training.runs.fit": ("fit",),
    "training.runs.log": ("training_log",),
    "training.train_step": ("train_step",),
}  # fmt: skip
"""Names that are imported when they are asked for, by module."""

if TYPE_CHECKING:
    from . import initializer, parametric_functions, solvers
    from . import jax as jax
    from . import nnabla as nnabla
    from . import parameter as parameter
    from . import torch as torch
    from .compilations import RecompilationWarning
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
    from .derivatives.implicit import Convergence, fixed_point, linear_solve, minimize, odeint, root
    from .files.exporting.export import export
    from .files.exporting.exported import load_exported
    from .files.parameter_files import load_parameters, save_parameters
    from .inspection import (
        checks,
        count,
        explain,
        find_nan,
        hooks,
        memory_report,
        show,
        show_passes,
        show_rewrites,
        source_locations,
    )
    from .inspection.debugging import debug
    from .inspection.hooks import (
        FunctionHook,
        set_function_post_hook,
        set_function_pre_hook,
        unset_function_post_hook,
        unset_function_pre_hook,
    )
    from .inspection.lanczos import lanczos
    from .inspection.viewing.draw import draw
    from .inspection.viewing.view import view
    from .jax.compilation_cache import cache_compilations
    from .jax.from_jax import from_jax
    from .jax.to_jax import compile, to_jax
    from .memory import LeastMemory, MemoryBudget, Segments, recompute
    from .parallel import hosts
    from .parallel.devices.mesh import mesh, shard
    from .parameter import (
        clear_parameters,
        get_current_parameter_scope,
        get_parameter,
        get_parameter_or_create,
        get_parameters,
        parameter_scope,
        pop_parameter,
        set_parameter,
    )
    from .solvers import DynamicLossScale
    from .torch import from_torch
    from .training.checkpoints import Checkpointer
    from .training.containers import ModuleDict, ModuleList, Parameter, Sequential
    from .training.feeding import feed
    from .training.mixed_precision import precision
    from .training.modules import Module
    from .training.moving_average import MovingAverage
    from .training.runs.fit import fit
    from .training.runs.log import training_log
    from .training.train_step import train_step

_MODULE_OF = {name: module for module, names in _ELSEWHERE.items() for name in names}

_is_there(f"{__name__}.cpu")  # which registers its passes
_is_heard_by(f"{__name__}.compilations", "compiled")
_is_provided_by(f"{__name__}.memory", _engine, "peak_bytes", "policy_key", "rematerialised")
_is_provided_by(f"{__name__}.inspection.estimates", _engine, "warn_of_cancelled")
_is_provided_by(f"{__name__}.memory", Variable, "recompute")
_is_provided_by(f"{__name__}.parallel.devices.grid", _Placement, "across", "mesh_of")
_is_provided_by(f"{__name__}.inspection.shown", Variable, "__repr__")
_is_provided_by(f"{__name__}.inspection.shown", Function, "__repr__")
_is_provided_by(f"{__name__}.nnabla.names", _engine, "argument_elsewhere", "counterpart", "name_elsewhere")
_is_provided_by(
    f"{__name__}.nnabla.links", Variable, "addgrad", "clear_all_graph_links", "creator", "function_references",
    "no_grad", "reset_shape", "rewire_on", "unchain", "unchain_backward", "unlinked", "visit", "visit_check",
)  # fmt: skip

if _environ.get("NNGRAD_DEBUG"):
    _is_there(f"{__name__}.inspection.debugging")  # which switches debug mode on


def _public(name: str, value: Any) -> Any:
    """A public name as it is here: functions explain calls that do not fit, and are where pickle finds them."""
    if _isfunction(value):
        value = _explained(value)
        value.__module__, value.__qualname__ = __name__, name
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if not TYPE_CHECKING:  # checkers of types say themselves what does not fit
    for _name in __all__:
        if _name in globals():
            globals()[_name] = _public(_name, globals()[_name])

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            value = _import_module(f"{__name__}.{_MODULES[name]}")
        elif name in _MODULE_OF:
            value = _public(name, getattr(_import_module(f"{__name__}.{_MODULE_OF[name]}"), name))
        else:
            moved = f"; it is nngrad.nnabla.{name}" if name in ("FunctionNode", "PythonFunction") else ""
            raise _no_attribute(f"nngrad has no {name!r}{moved}", name, () if moved else __all__)
        return globals().setdefault(name, value)

    _sys.meta_path.append(_ImportHints)
