"""The seams of the kernel: the only names of it that packages above may import."""

from backward_registry.rules import adjoint_pair, backward, bilinear_family, non_differentiable, slopes

from ..autodiff.custom_function import CustomFunction
from ..autodiff.forward_mode import NoForwardMode
from ..autodiff.grad import emitted, grad
from ..autodiff.known_gradients import close_with_derivations
from ..autodiff.request import (
    Derivation,
    Mode,
    Request,
    ResultDerivation,
    derivation_of,
    derivations_in,
    differentiable,
    history,
    variables,
)
from ..execution import executables
from ..execution.backward import reached_leaves
from ..execution.compiled import (
    executable_in_one,
    executable_of,
    hoisted_of,
    jitted_as_equal_programs,
    keep_executable,
)
from ..execution.executable import Executable, Settings, spent
from ..execution.interpret import interpret, results_of
from ..execution.lower import linearize, lower, lowered_where_it_runs
from ..execution.partitions import Hoisted, Partition, hoisted_in
from ..execution.passes import (
    HOIST,
    LoopFound,
    Pass,
    is_too_long,
    loops_found,
    loops_in,
    lowered,
    lowering_passes,
    passes,
    platforms,
    prepared,
    register_pass,
    steps_of_lowering,
    with_bodies_inline,
)
from ..execution.plans import device_of, plan_of
from ..execution.program import (
    Call,
    Program,
    RolledLoop,
    block_of,
    calls_of,
    functions_to_compile,
    is_sum,
    late,
    makers,
    platform_of,
    with_forward,
    without_identities,
)
from ..execution.reading import take_snapshot
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
    by_rank,
    composite,
    contained,
    create,
    leaves_of,
    op,
    path_between,
    placement,
    set_switches,
)
from ..graph.arguments import Axes as AxesArgument
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
from ..graph.axes import Keys
from ..graph.block import Block, Step, bodies_in, has_opaque, run_steps
from ..graph.body_op import ControlOp, Within, bodies_of
from ..graph.bounded_cache import BoundedCache, cache_about_structures
from ..graph.capture import placeholder
from ..graph.closing import Closing, close
from ..graph.engine import Operators, engine, provide
from ..graph.function import locate
from ..graph.leaf import arrays_in, arrays_of, as_variable, as_variables
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
from ..graph.op import arguments_need_x64
from ..graph.options import (
    Switched,
    WithBlock,
    pause_collector,
    put_layers,
    start_with,
    switch_to,
    switched,
    watching_for_users_code,
    without,
)
from ..graph.process import (
    Process,
    check_not_traced,
    check_process,
    interrupt_safe,
    jax_internal,
    missing_in_jax,
    named_axes,
)
from ..graph.signatures import explained, explained_by_name
from ..graph.spec import DType, Spec, array_of, converted, dtype_of, has_name, spec_of, x64_if
from ..graph.thresholds import BYTES_OF_A_STEP
from ..graph.traverse import as_made, functions_of, operands_first
from ..graph.value import (
    Value,
    is_shared,
    on_host,
    put_together,
    together,
    writing,
)
from ..graph.variable import leaf_of
from ..rewrite.builder import RULES, emitting, recording, rewriting_rule
from ..rewrite.sums import summands

__all__ = [
    "BYTES_OF_A_STEP", "HOIST", "RULES", "Array", "AxesArgument", "Block", "BoundedCache", "Call", "Closing",
    "Composite", "ControlOp", "CustomFunction", "DType", "Derivation", "Executable", "Function", "Hoisted", "Ints",
    "Keys", "LoopFound", "Mode", "NamesElsewhere", "NdArray", "NoForwardMode", "Op", "Operators", "Partition",
    "Pass", "Process", "Program", "Request", "ResultDerivation", "RolledLoop", "RuleCall", "Settings",
    "ShapeArgument", "SourceLocation", "Spec", "Static", "Step", "Switched", "Value", "Variable", "WithBlock",
    "Within", "adjoint_pair", "apply", "arguments_need_x64", "array_of", "arrays_in", "arrays_of",
    "as_ints", "as_made", "as_static_float", "as_variable", "as_variables", "backward", "bilinear_family",
    "block_of", "bodies_in", "bodies_of", "build_options", "by_rank", "cache_about_structures", "calls_of",
    "check_bool", "check_not_traced", "check_process", "checked_choice", "checked_count", "checked_spec", "close",
    "close_with_derivations", "coerced", "composite", "contained", "converted", "create", "derivation_of",
    "derivations_in", "device_of", "did_you_mean", "differentiable", "dtype_of", "emitted", "emitting", "engine",
    "executable_in_one", "executable_of", "executables", "explained", "explained_by_name",
    "functions_of", "functions_to_compile", "grad", "has_name", "has_opaque", "history", "hoisted_in", "hoisted_of",
    "host_array", "interpret", "interrupt_safe", "is_shared", "is_sum", "is_too_long", "jax_internal",
    "jitted_as_equal_programs", "keep_executable", "key_of", "late", "leaf_of", "leaves_of", "linearize", "locate",
    "loops_found", "loops_in", "lower", "lowered", "lowered_where_it_runs", "lowering_passes", "makers",
    "missing_in_jax", "named_axes", "no_attribute", "no_such_argument", "non_differentiable", "on_host",
    "op", "operands_first", "passes", "path_between", "pause_collector", "placeholder", "placement", "plan_of",
    "platform_of", "platforms", "prepared", "provide", "put_layers", "put_together", "reached_leaves", "recording",
    "register_pass", "results_of", "rewriting_rule", "run_steps", "set_switches", "slopes", "spec_of", "spent",
    "start_with", "steps_of_lowering", "summands", "switch_to", "switched", "take_snapshot", "together",
    "users_location", "variables", "warn_user", "watching_for_users_code", "with_bodies_inline", "with_forward",
    "without", "without_identities", "writing", "x64_if",
]  # fmt: skip
