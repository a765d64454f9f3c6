"""The equations of jaxprs, across versions of JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax import numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr

CUSTOM_RULES = {"custom_jvp_call", "custom_vjp_call"}
"""Primitives with a user-defined derivative."""

CALLS = {"call", "closed_call", "eval_jaxpr", "jit", "remat2", "run_state"}
"""Primitives that call a jaxpr and can be replaced by its equations."""

_OBJECTS = {
    "CheckpointName": "name", "CheckpointNameFwd": "name", "CustomJVPTraced": "custom_jvp_call",
    "CustomVJPTraced": "custom_vjp_call", "RematTraced": "remat2",
}  # fmt: skip
"""With `jax_custom_jvp3`, `jax_custom_vjp3` and `jax_remat3`, JAX uses one primitive for all of these, with an object
as its parameter. This maps the object's class to the usual primitive. Other classes also have derivatives of their own.
"""

CALL_OF_OBJECT, _DERIVATIVE_OF_OBJECT = "call_hi_primitive", "call_hi_primitive_linearized"
ONE_WAY = "custom_lin"
"""The primitive for the derivative of a function with `custom_vjp`: it can be transposed, but not run."""

_MUCH = {
    "dot_general", "ragged_dot", "ragged_dot_general", "conv_general_dilated", "fft", "scan", "while", "linear_solve",
}
"""Primitives of `jax.lax` whose arithmetic per element grows with the size of the arrays."""

_LITTLE = {
    *CUSTOM_RULES, *CALLS, ONE_WAY, "add_any", "copy", "random_bits", "random_unwrap", "random_wrap", "scatter-add",
    "scatter-mul", "threefry2x32",
}
"""Primitives outside `jax.lax` that do a few operations per element, or just call functions."""


def does_much(jaxpr: Jaxpr) -> bool:
    """True if it does much arithmetic per element: products, loops, decompositions, and anything unknown."""
    names = primitives_in(jaxpr) - _LITTLE
    return not _MUCH.isdisjoint(names) or not all([hasattr(jax.lax, f"{name}_p") for name in names])


def primitives_in(jaxpr: Jaxpr) -> set[str]:
    """The names of the primitives in a jaxpr and in nested ones."""
    return {name_of(eqn) for eqn in equations_in(jaxpr)}


def name_of(equation: Any) -> str:
    """The name of an equation's primitive, normalised across versions and settings of JAX."""
    name: str = equation.primitive.name
    kind = type(equation.params.get("_prim")).__name__
    if name == _DERIVATIVE_OF_OBJECT:
        return ONE_WAY if kind == "CustomVJPTraced" else name
    if name != CALL_OF_OBJECT:
        return name
    moves = any([jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in equation.outvars])
    return _OBJECTS.get(kind, "custom_jvp_call" if moves else "eval_jaxpr")


def parameters_of(equation: Any) -> dict[str, Any]:
    """An equation's parameters, or those of the object that it holds."""
    parameters: dict[str, Any] = getattr(equation.params.get("_prim"), "params", equation.params)
    return parameters


def jaxprs_in(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """The jaxpr, and those nested in it."""
    pending: list[Jaxpr] = [jaxpr]
    while pending:
        current = pending.pop()
        yield current
        for eqn in current.eqns:
            pending += bodies_of(eqn)


def bodies_of(equation: Any) -> Iterator[Jaxpr]:
    """The jaxprs nested in an equation."""
    for inner in held_by(equation):
        while not isinstance(inner, Jaxpr) and hasattr(inner, "jaxpr"):
            inner = inner.jaxpr
        if isinstance(inner, Jaxpr):
            yield inner


def held_by(equation: Any) -> Iterator[Any]:
    """The equation's parameters, with the items of tuples and lists."""
    for value in parameters_of(equation).values():
        yield from value if isinstance(value, tuple | list) else (value,)


def equations_in(jaxpr: Jaxpr) -> Iterator[Any]:
    """The equations of a jaxpr, and of those nested in it."""
    for inner in jaxprs_in(jaxpr):
        yield from inner.eqns


def without_unread(function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    """The function after dead code elimination, for instance of stacks of values in loops. `jax.jit` does this for what
    it traces, but not for the lowering of a primitive, and XLA not for loops within loops."""

    def run(*arrays: Any) -> tuple[Any, ...]:
        closed = jax.make_jaxpr(function)(*arrays)
        jaxpr, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.out_avals), instantiate=True)
        results: tuple[Any, ...] = tuple(jaxpr_as_fun(ClosedJaxpr(jaxpr, closed.consts))(*arrays))
        return results

    return run
