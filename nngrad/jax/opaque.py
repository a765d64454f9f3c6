"""Opaque equations as functions of arrays, with the inputs that no Variable can hold computed within."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import jaxpr_as_fun

from .. import functions as F
from ..functions.key_data import is_key
from ..graph import Variable
from ..graph.jaxpr import alone, equations_in, name_of
from .evaluating import evaluated
from .values import ComplexPair, Delayed, Keys, KnownArray, Value

Closure = tuple[Callable[..., list[Any]], list[Variable], list[str]]
"""A function of arrays, the Variables whose arrays it takes, and the names of the primitives in it."""


def require_compiled(equation: Any) -> None:
    """Raise an error if JAX cannot compile an equation: a primitive in it has an `impl` but no lowering.

    Raises:
        NotImplementedError: JAX cannot compile it.
    """
    for each in equations_in(alone(equation).jaxpr):
        run = each.primitive.impl
        module = getattr(getattr(run, "func", run), "__module__", None) or ""
        if not module.startswith(("jax.", "nngrad.")):
            single = alone(each)
            jax.jit(jaxpr_as_fun(single)).lower(*single.in_avals)


def closure_of(equation: Any, given: list[Value]) -> Closure:
    """An equation as a function of the arrays of Variables; known inputs are baked in.

    Args:
        equation: The equation; Variables or keys can hold its results.
        given: Its inputs.
    """
    order = _in_order(equation, given)
    moving: dict[int, tuple[Variable | Keys, bool]] = {}
    for one, values in order:
        for v, described in zip(values, [u.aval for u in one.invars], strict=True):
            if isinstance(v, ComplexPair):
                moving.update([(id(p), (p, False)) for p in (v.real, v.imaginary) if isinstance(p, Variable)])
            if isinstance(v, Variable | Keys):
                moving.setdefault(id(v), (v, described.dtype == bool))
    inputs = [_input(v, truth) for v, truth in moving.values()]

    def function(*arrays: Any) -> list[Any]:
        at: dict[int, Any] = {}
        for (i, (v, _)), array in zip(moving.items(), arrays, strict=True):
            at[i] = jax.random.wrap_key_data(array, impl=v.implementation) if isinstance(v, Keys) else array
        results: dict[int, list[Any]] = {}
        for one, values in order:
            own = zip(values, one.invars, strict=True)
            results[id(one)] = evaluated(one, [_array(v, u.aval, at, results) for v, u in own])
        return [jax.random.key_data(y) if is_key(y) else y for y in results[id(equation)]]

    names = [name_of(one) for one, _ in order]
    function.__name__ = names[-1]
    return function, inputs, names


def _in_order(equation: Any, given: list[Value]) -> list[tuple[Any, list[Value]]]:
    """The equation and those that compute its delayed inputs, each with its inputs, in topological order."""
    found: dict[int, tuple[Any, list[Value]]] = {}
    pending = [(equation, given, False)]
    while pending:
        one, values, ready = pending.pop()
        if id(one) in found:
            continue
        if ready:
            found[id(one)] = one, values
            continue
        pending.append((one, values, True))
        pending += [(v.equation, v.values, False) for v in values if isinstance(v, Delayed)]
    return list(found.values())


def _input(value: Variable | Keys, truth: bool) -> Variable:
    if isinstance(value, Keys):
        return value.data
    return F.cast(value, dtype=bool) if truth and value.dtype != bool else value


def _array(value: Value, described: Any, at: dict[int, Any], results: dict[int, list[Any]]) -> Any:
    if isinstance(value, Delayed):
        return results[id(value.equation)][value.index]
    if isinstance(value, ComplexPair):
        both = value.real, value.imaginary
        parts = [at[id(p)] if isinstance(p, Variable) else jax.numpy.asarray(p.array) for p in both]
        return jax.lax.complex(*parts).astype(described.dtype)
    if isinstance(value, KnownArray):
        return value.array if is_key(value) else jax.numpy.asarray(value.array, described.dtype)
    array = at[id(value)]
    return array if is_key(array) or array.dtype == described.dtype else array.astype(described.dtype)
