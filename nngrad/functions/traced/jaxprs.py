"""Jaxprs: traced, taken apart, and made safe to keep."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from ...graph import Spec
from ...graph.jaxpr import CALL_OF_OBJECT, equations_in, held_by, jaxprs_in, parameters_of
from ...graph.process import interrupt_safe
from ...graph.spec import x64_if


def jaxpr_for(function: Callable[..., Any], inputs: Sequence[Spec]) -> ClosedJaxpr:
    """Trace a function of arrays, in its current state, for inputs of these shapes and dtypes."""
    with x64_if(any([s.needs_x64 for s in inputs])):
        # A new function each time, since JAX caches traces by function.
        closed: ClosedJaxpr = interrupt_safe(jax.make_jaxpr(lambda *x: function(*x)))(*[s.abstract() for s in inputs])
    let_own_arrays(closed)
    return closed


def called_function(equation: Any) -> ClosedJaxpr | None:
    """The jaxpr that an equation calls on its inputs; None if there is none."""
    if equation.primitive.name == CALL_OF_OBJECT:
        inputs = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype, weak_type=v.aval.weak_type) for v in equation.invars]
        with x64_if(any([v.dtype.itemsize >= 8 for v in inputs])):
            trace = interrupt_safe(jax.make_jaxpr(lambda *x: equation.primitive.to_lojax(*x, **equation.params)))
            called: ClosedJaxpr = trace(*inputs)
            return called
    for name in ("jaxpr", "call_jaxpr"):
        inner = equation.params.get(name)
        if isinstance(inner, ClosedJaxpr | Jaxpr):
            return inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, [])
    return None


@functools.cache
def _empty() -> Any:
    return jax.make_jaxpr(lambda: ())().jaxpr


def alone(equation: Any) -> ClosedJaxpr:
    """A jaxpr of just this equation."""
    inputs = [Var(v.aval) for v in equation.invars]
    outputs = [Var(v.aval) for v in equation.outvars]
    single: Jaxpr = _empty().replace(
        invars=inputs, outvars=outputs, eqns=[equation.replace(invars=inputs, outvars=outputs)],
        effects=equation.effects,
    )  # fmt: skip
    return ClosedJaxpr(single, [])


def count_closed_over(call: Any) -> int:
    """The number of leading inputs of a call with a custom rule that its function closes over. JAX does not
    differentiate a `custom_vjp_call` by these: it raises, and corrupts its cache for the call.

    When JAX traces such a call again, it turns them into ordinary inputs, and wraps the rule so that they get no
    gradient. These are counted too: `bwd` is a chain of JAX's functions, each of which holds the next.
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


def counts_of_scan(params: dict[str, Any]) -> tuple[int, int]:
    """The numbers of a scan's constant inputs and of its carries, which come next."""
    if "ft_in" not in params:
        return int(params["num_consts"]), int(params["num_carry"])
    fixed, carried, _ = params["ft_in"].unpack()
    return len(fixed), len(carried)


def constants_in(closed: ClosedJaxpr) -> list[list[Any]]:
    """The lists of constants of a jaxpr and of those nested in it."""
    inside = [x for equation in equations_in(closed.jaxpr) for x in held_by(equation) if isinstance(x, ClosedJaxpr)]
    return [closed.consts, *[inner.consts for inner in inside]]


def holds_tracers(closed: ClosedJaxpr) -> bool:
    """True if a constant in it, or nested in it, is a tracer, which is useless once its trace has ended."""
    return any([isinstance(constant, jax.core.Tracer) for held in constants_in(closed) for constant in held])


def let_own_arrays(closed: ClosedJaxpr) -> None:
    """Replace the NumPy arrays that a jaxpr reads by copies. JAX keeps the arrays of the function's author, who may
    write to them later; a cached function would then compute something else."""
    for held in constants_in(closed):
        held[:] = map(_own, held)
    for jaxpr in jaxprs_in(closed.jaxpr):
        for v in (*jaxpr.outvars, *[v for eqn in jaxpr.eqns for v in eqn.invars]):
            if isinstance(v, Literal):
                v.val = _own(v.val)


def _own(value: Any) -> Any:
    return copy.deepcopy(value) if type(value).__name__ == "TypedNdArray" else value
