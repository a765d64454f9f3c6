"""What is in a JAX function that was traced, as each version of JAX writes it."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from types import FunctionType
from typing import Any

import jax
from jax import numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from .process import unharmed
from .spec import Spec, x64_if

CUSTOM_RULES = {"custom_jvp_call", "custom_vjp_call"}
"""Primitives whose derivative the function's author has set."""

CALLS = {"call", "closed_call", "eval_jaxpr", "jit", "remat2", "run_state"}
"""Primitives that call a function of equations, which stand for themselves."""

_OBJECTS = {
    "CheckpointName": "name", "CheckpointNameFwd": "name", "CustomJVPTraced": "custom_jvp_call",
    "CustomVJPTraced": "custom_vjp_call", "RematTraced": "remat2",
}  # fmt: skip
"""With `jax_custom_jvp3`, `jax_custom_vjp3` and `jax_remat3`, JAX writes one primitive for all of these, with an object
in it. By the object's class, the primitive that it writes without them. Others have derivatives of their own too."""

CALL_OF_OBJECT, _DERIVATIVE_OF_OBJECT = "call_hi_primitive", "call_hi_primitive_linearized"
ONE_WAY = "custom_lin"
"""The primitive that stands for the derivative of a function with `custom_vjp`: it can be transposed, and not run."""

_MUCH = {
    "dot_general", "ragged_dot", "ragged_dot_general", "conv_general_dilated", "fft", "scan", "while", "linear_solve",
}
"""Primitives of `jax.lax` that do more arithmetic for each element the larger the arrays are."""
_LITTLE = {
    *CUSTOM_RULES, *CALLS, ONE_WAY, "add_any", "copy", "random_bits", "random_unwrap", "random_wrap", "scatter-add",
    "scatter-mul", "threefry2x32",
}
"""Primitives beside those of `jax.lax` that do a few operations for each element, or what functions inside do."""


def jaxpr_for(function: Callable[..., Any], inputs: Sequence[Spec]) -> ClosedJaxpr:
    """A function of arrays as it is now, traced for inputs of these shapes and dtypes."""
    with x64_if(any([s.needs_x64 for s in inputs])):
        # As another function each time: JAX remembers what it has traced by the function.
        closed: ClosedJaxpr = unharmed(jax.make_jaxpr(lambda *x: function(*x)))(*[s.abstract() for s in inputs])
    let_own_arrays(closed)
    return closed


def does_much(jaxpr: Jaxpr) -> bool:
    """Whether it does much arithmetic for each element: products, loops, decompositions, and whatever is not known."""
    names = primitives_in(jaxpr) - _LITTLE
    return not _MUCH.isdisjoint(names) or not all([hasattr(jax.lax, f"{name}_p") for name in names])


def primitives_in(jaxpr: Jaxpr) -> set[str]:
    """The names of the primitives in it, and in the functions inside."""
    return {name_of(eqn) for eqn in equations_in(jaxpr)}


def name_of(equation: Any) -> str:
    """The name of its primitive, which is the same in all versions of JAX and with all of its switches."""
    name: str = equation.primitive.name
    kind = type(equation.params.get("_prim")).__name__
    if name == _DERIVATIVE_OF_OBJECT:
        return ONE_WAY if kind == "CustomVJPTraced" else name
    if name != CALL_OF_OBJECT:
        return name
    moves = any([jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in equation.outvars])
    return _OBJECTS.get(kind, "custom_jvp_call" if moves else "eval_jaxpr")


def parameters_of(equation: Any) -> dict[str, Any]:
    """Its parameters; those of the object where it holds one."""
    found: dict[str, Any] = getattr(equation.params.get("_prim"), "params", equation.params)
    return found


def called_function(equation: Any) -> ClosedJaxpr | None:
    """The function of equations that it calls, for its inputs; None where it calls none."""
    if equation.primitive.name == CALL_OF_OBJECT:
        given = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype, weak_type=v.aval.weak_type) for v in equation.invars]
        with x64_if(any([v.dtype.itemsize >= 8 for v in given])):
            trace = unharmed(jax.make_jaxpr(lambda *x: equation.primitive.to_lojax(*x, **equation.params)))
            called: ClosedJaxpr = trace(*given)
            return called
    for name in ("jaxpr", "call_jaxpr"):
        found = equation.params.get(name)
        if isinstance(found, ClosedJaxpr | Jaxpr):
            return found if isinstance(found, ClosedJaxpr) else ClosedJaxpr(found, [])
    return None


@functools.cache
def _empty() -> Any:
    return jax.make_jaxpr(lambda: ())().jaxpr


def alone(equation: Any) -> ClosedJaxpr:
    """A jaxpr that holds just one equation."""
    inputs = [Var(v.aval) for v in equation.invars]
    outputs = [Var(v.aval) for v in equation.outvars]
    single: Jaxpr = _empty().replace(
        invars=inputs, outvars=outputs, eqns=[equation.replace(invars=inputs, outvars=outputs)],
        effects=equation.effects,
    )  # fmt: skip
    return ClosedJaxpr(single, [])


def count_closed_over(call: Any) -> int:
    """How many of the first inputs of a call with an author's rule are what that function closes over. JAX does not
    differentiate a `custom_vjp_call` by these: it raises, and what it remembers of the call is broken from then on.

    Where JAX traces such a call again it makes ordinary inputs of them, and puts what gives them no gradient around
    the rule. So those are counted too: `bwd` is a chain of JAX's functions, each of which holds the next.
    """
    count, pending = int(call.params.get("num_consts", 0)), [parameters_of(call).get("bwd")]
    while pending:
        rule = pending.pop()
        for wrapper, arguments in getattr(rule, "transforms", ()):
            if wrapper.__name__ == "_handle_consts_in_bwd":
                count += len(arguments[0])
        for cell in getattr(getattr(rule, "f", None), "__closure__", None) or ():
            with contextlib.suppress(ValueError):  # an empty cell
                pending += [cell.cell_contents] if type(cell.cell_contents) is type(rule) else []
    return count


def rules_of(call: Any, key_of: Callable[[Any], Hashable]) -> Hashable:
    """The rules that an author has set for a call: two that are equal are the same functions of the author's, in
    wrappers of JAX's that hold the same. What JAX keeps in these of a trace has no part in it.

    Args:
        call: The call.
        key_of: What other objects are compared by.
    """
    kept = {key: value for key, value in parameters_of(call).items() if key not in _NO_RULES}
    return tuple([(key, _wrapped(value, key_of, _MOST_WRAPPERS)) for key, value in sorted(kept.items())])


def _wrapped(value: Any, key_of: Callable[[Any], Hashable], depth: int) -> Hashable:
    if isinstance(value, Jaxpr | ClosedJaxpr):  # in which there may be other rules
        return value
    if type(value).__name__ in _OF_TRACES:
        return None
    inner = _held_by_wrapper(value)
    if inner is None or not depth:
        return key_of(value)
    return type(value).__name__, tuple([_wrapped(x, key_of, depth - 1) for x in inner])


def _held_by_wrapper(value: Any) -> Sequence[Any] | None:
    """What a wrapper of JAX's holds; None for what is none."""
    if hasattr(value, "transforms"):
        return value.f, getattr(value, "params", ()), *value.transforms
    if isinstance(value, tuple | list):
        return value
    if type(value).__name__ == "Unhashable":  # an argument by which nobody differentiates
        return (value.val,)
    if not isinstance(value, FunctionType) or not (value.__module__ or "").startswith("jax."):
        return None
    kept = _MEMORY if value.__name__ == "memoized" else ()
    named = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
    with contextlib.suppress(ValueError):  # an empty cell
        return value.__code__, *[cell.cell_contents for name, cell in named if name not in kept]
    return None


_NO_RULES = {"call_jaxpr", "jaxpr", "out_trees"}
"""The parameters of a call that are what it computes, and what JAX notes of it."""

_OF_TRACES, _MEMORY = {"DebugInfo", "DynamicJaxprTrace", "EqualStore", "Store"}, {"cells", "sentinel"}
"""What wrappers of JAX's hold of the trace that they were made in: kinds of objects, and names in functions that
remember."""

_MOST_WRAPPERS = 24
"""How deep wrappers are looked into."""


def reaching_closed_over(jaxpr: Jaxpr) -> set[int]:
    """Of which inputs, of floating dtype, what functions with `custom_vjp` close over is computed, in bodies too, which
    are nested a few levels deep at most. Of a loop that has such a function all inputs count."""
    found: set[Any] = set()
    for equation in reversed(jaxpr.eqns):
        name = name_of(equation)
        if not found.isdisjoint(equation.outvars) and name != "stop_gradient":
            found.update(_that_move(equation.invars))
        if name == "custom_vjp_call":
            found.update(_that_move(equation.invars[: count_closed_over(equation)]))
            continue
        for body in bodies_of(equation):
            reached, inputs = reaching_closed_over(body), equation.invars[name == "cond" :]  # a branch's index is first
            fits = name not in ("scan", "while") and len(inputs) == len(body.invars)
            found.update(_that_move([inputs[i] for i in reached] if fits else inputs if reached else []))
    return {i for i, v in enumerate((*jaxpr.constvars, *jaxpr.invars)) if v in found}


def _that_move(variables: Sequence[Any]) -> list[Var]:
    return [v for v in variables if isinstance(v, Var) and jnp.issubdtype(getattr(v.aval, "dtype", int), jnp.inexact)]


def counts_of_scan(params: dict[str, Any]) -> tuple[int, int]:
    """How many of a scan's first inputs are the same in all steps, and how many are carried, which come next."""
    if "ft_in" not in params:
        return int(params["num_consts"]), int(params["num_carry"])
    fixed, carried, _ = params["ft_in"].unpack()
    return len(fixed), len(carried)


def constants_in(closed: ClosedJaxpr) -> list[list[Any]]:
    """The lists of what it holds as constants, and of what the functions inside hold."""
    inside = [x for equation in equations_in(closed.jaxpr) for x in _held_by(equation) if isinstance(x, ClosedJaxpr)]
    return [closed.consts, *[each.consts for each in inside]]


def holds_tracers(closed: ClosedJaxpr) -> bool:
    """Whether it, or a function inside, holds a tracer as a constant: of no use when the trace of that has ended."""
    return any([isinstance(each, jax.core.Tracer) for held in constants_in(closed) for each in held])


def let_own_arrays(closed: ClosedJaxpr) -> None:
    """Let it hold copies of the NumPy arrays that it reads. JAX keeps the arrays of whoever wrote the function, who may
    write to them later; what is remembered of the function would then compute something else."""
    for held in constants_in(closed):
        held[:] = map(_own, held)
    for each in jaxprs_in(closed.jaxpr):
        for v in (*each.outvars, *[v for eqn in each.eqns for v in eqn.invars]):
            if isinstance(v, Literal):
                v.val = _own(v.val)


def _own(value: Any) -> Any:
    return copy.deepcopy(value) if type(value).__name__ == "TypedNdArray" else value


def jaxprs_in(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """It, and the functions inside."""
    pending: list[Jaxpr] = [jaxpr]
    while pending:
        found = pending.pop()
        yield found
        for eqn in found.eqns:
            pending += bodies_of(eqn)


def bodies_of(equation: Any) -> Iterator[Jaxpr]:
    """The functions inside of an equation."""
    for inner in _held_by(equation):
        while not isinstance(inner, Jaxpr) and hasattr(inner, "jaxpr"):
            inner = inner.jaxpr
        if isinstance(inner, Jaxpr):
            yield inner


def _held_by(equation: Any) -> Iterator[Any]:
    """Its parameters; of tuples and lists what is in them."""
    for value in parameters_of(equation).values():
        yield from value if isinstance(value, tuple | list) else (value,)


def equations_in(jaxpr: Jaxpr) -> Iterator[Any]:
    """Its equations, and those of the functions inside."""
    for each in jaxprs_in(jaxpr):
        yield from each.eqns
