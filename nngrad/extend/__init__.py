"""The seams of the kernel: the only names of it that packages above may import."""

from backward_registry.rules import adjoint_pair, backward, bilinear_family, non_differentiable, slopes

from ..autodiff.custom_function import CustomFunction
from ..autodiff.forward_mode import NoForwardMode
from ..autodiff.grad import emitted, grad
from ..autodiff.known_gradients import close_with_derivations
from ..autodiff.request import Derivation, Mode, Request, ResultDerivation, Task, ancestry, differentiable, variables
from ..execution import executables
from ..execution.backward import reached_leaves
from ..execution.compiled import executable_of, jitted_as_equal_programs, temporary_bytes
from ..execution.executable import Executable, Settings
from ..execution.interpret import interpret, results_of
from ..execution.lower import linearize, lower
from ..execution.passes import LoopFound, Stage, lowering_passes, passes, prepared, register_pass, stages_of
from ..execution.plans import device_of
from ..execution.program import Program, arrays_of
from ..graph import (
    Array,
    Composite,
    Function,
    NdArray,
    Op,
    RuleCall,
    Variable,
    apply,
    build_options,
    composite,
    contained,
    create,
    leaves_of,
    op,
    path_between,
    placement,
    set_switches,
)
from ..graph.arguments import (
    Ints,
    Static,
    as_ints,
    as_static_float,
    check_bool,
    checked_choice,
    checked_count,
    coerced,
    key_of,
)
from ..graph.arguments import Shape as ShapeArgument
from ..graph.block import Block, Call, RolledLoop, bodies_in
from ..graph.body_op import ControlOp, Within
from ..graph.bounded_cache import BoundedCache, cache_about_structures
from ..graph.capture import placeholder
from ..graph.closing import Closing, close
from ..graph.engine import Operators, engine, provide
from ..graph.event import Event
from ..graph.leaf import arrays_in, as_variable, as_variables
from ..graph.messages import (
    NamesElsewhere,
    SourceLocation,
    did_you_mean,
    no_attribute,
    no_such_argument,
    users_location,
    warn_user,
)
from ..graph.ndarray import checked_spec, host_array
from ..graph.options import Switched, WithBlock, switch_to, switched, watch, watching_for_users_code
from ..graph.process import check_not_traced, check_process, interrupt_safe, jax_internal, missing_in_jax, named_axes
from ..graph.signatures import explained, explained_by_name
from ..graph.spec import DType, Spec, array_of, converted, dtype_of, has_name, spec_of, x64_if
from ..graph.traverse import as_made, functions_of, operands_first
from ..graph.value import Value, on_host, put_together, together, writing
from ..graph.variable import leaf_of
from ..rewrite.builder import RULES, emitting, rewriting_rule
from ..rewrite.sums import summands

__all__ = [
    "RULES", "Array", "Block", "BoundedCache", "Call", "Closing", "Composite", "ControlOp", "CustomFunction",
    "DType", "Derivation", "Event", "Executable", "Function", "Ints", "LoopFound", "Mode", "NamesElsewhere",
    "NdArray", "NoForwardMode", "Op", "Operators", "Program", "Request", "ResultDerivation", "RolledLoop",
    "RuleCall", "Settings", "ShapeArgument", "SourceLocation", "Spec", "Stage", "Static", "Switched", "Task",
    "Value", "Variable", "WithBlock", "Within", "adjoint_pair", "ancestry", "apply", "array_of", "arrays_in",
    "arrays_of", "as_ints", "as_made", "as_static_float", "as_variable", "as_variables", "backward",
    "bilinear_family", "bodies_in", "build_options", "cache_about_structures", "check_bool", "check_not_traced",
    "check_process", "checked_choice", "checked_count", "checked_spec", "close", "close_with_derivations",
    "coerced", "composite", "contained", "converted", "create", "device_of", "did_you_mean", "differentiable",
    "dtype_of", "emitted", "emitting", "engine", "executable_of", "executables", "explained", "explained_by_name",
    "functions_of", "grad", "has_name", "host_array", "interpret", "interrupt_safe", "jax_internal",
    "jitted_as_equal_programs", "key_of", "leaf_of", "leaves_of", "linearize", "lower", "lowering_passes",
    "missing_in_jax", "named_axes", "no_attribute", "no_such_argument", "non_differentiable", "on_host", "op",
    "operands_first", "passes", "path_between", "placeholder", "placement", "prepared", "provide", "put_together",
    "reached_leaves", "register_pass", "results_of", "rewriting_rule", "set_switches", "slopes", "spec_of",
    "stages_of", "summands", "switch_to", "switched", "temporary_bytes", "together", "users_location", "variables",
    "warn_user", "watch", "watching_for_users_code", "writing", "x64_if",
]  # fmt: skip
