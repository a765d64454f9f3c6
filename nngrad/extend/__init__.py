"""The seams of the kernel: the only names of it that packages above may import."""

from backward_registry.rules import adjoint_pair, backward, bilinear_family, non_differentiable, slopes

from ..autodiff.custom_function import CustomFunction
from ..autodiff.forward_mode import NoForwardMode
from ..autodiff.grad import emitted, grad
from ..autodiff.request import Request, differentiable, variables
from ..execution.backward import reached_leaves
from ..execution.compiled import bytes_of, executables
from ..execution.executable import Executable
from ..execution.interpret import interpret, results_of
from ..execution.lower import linearize, lower
from ..execution.passes import lowering_passes, prepared, register_pass
from ..execution.plans import Awaited, awaited, device_of
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
)
from ..graph.arguments import Ints, Static, checked_choice, checked_count, coerced, key_of
from ..graph.arguments import Shape as ShapeArgument
from ..graph.block import Block, Call, RolledLoop, bodies_in
from ..graph.body_op import ControlOp, Within
from ..graph.bounded_cache import BoundedCache
from ..graph.capture import placeholder
from ..graph.closing import Closing, close
from ..graph.engine import engine, provide
from ..graph.event import CompilationEvent, Event, PassEvent
from ..graph.leaf import as_variable, as_variables
from ..graph.messages import SourceLocation, did_you_mean, no_attribute, warn_user
from ..graph.ndarray import host_array
from ..graph.options import Switched, WithBlock, pause_collector, watch, watching_for_users_code
from ..graph.process import check_not_traced, check_process, interrupt_safe, jax_internal, missing_in_jax, named_axes
from ..graph.signatures import explained
from ..graph.spec import Spec, array_of, dtype_of, spec_of, x64_if
from ..graph.traverse import as_made, functions_of, operands_first
from ..graph.value import Value, on_host
from ..graph.variable import cells_of, grads_of, leaf_of
from ..rewrite.builder import RULES, rewriting_rule
from ..rewrite.sums import summands

__all__ = [
    "RULES", "Array", "Awaited", "Block", "BoundedCache", "Call", "Closing", "CompilationEvent", "Composite",
    "ControlOp", "CustomFunction", "Event", "Executable", "Function", "Ints", "NdArray", "NoForwardMode", "Op",
    "PassEvent", "Program", "Request", "RolledLoop", "RuleCall", "ShapeArgument", "SourceLocation", "Spec", "Static",
    "Switched", "Value", "Variable", "WithBlock", "Within", "adjoint_pair", "apply", "array_of", "arrays_of", "as_made",
    "as_variable", "as_variables", "awaited", "backward", "bilinear_family", "bodies_in", "build_options", "bytes_of",
    "cells_of", "check_not_traced", "check_process", "checked_choice", "checked_count", "close", "coerced", "composite",
    "contained", "create", "device_of", "did_you_mean", "differentiable", "dtype_of", "emitted", "engine",
    "executables", "explained", "functions_of", "grad", "grads_of", "host_array", "interpret", "interrupt_safe",
    "jax_internal", "key_of", "leaf_of", "leaves_of", "linearize", "lower", "lowering_passes", "missing_in_jax",
    "named_axes", "no_attribute", "non_differentiable", "on_host", "op", "operands_first", "path_between",
    "pause_collector", "placeholder", "placement", "prepared", "provide", "reached_leaves", "register_pass",
    "results_of", "rewriting_rule", "slopes", "spec_of", "summands", "variables", "warn_user", "watch",
    "watching_for_users_code", "x64_if",
]  # fmt: skip
