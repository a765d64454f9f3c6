"""Evaluation of single equations of a jaxpr: at once, or as functions of arrays where they stay opaque."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from .. import functions as F
from ..extend import Variable, x64_if
from ..functions.traced import (
    CUSTOM_RULES,
    alone,
    bodies_of,
    called_function,
    is_key,
    name_of,
    primitives_in,
)
from .values import ComplexPair, Delayed, Keys, KnownArray, Value, known, needs_x64, read


def evaluated(equation: Any, arrays: Sequence[Any]) -> list[Any]:
    """The results of an equation for these arrays."""
    return list(jaxpr_as_fun(alone(equation))(*arrays))


def may_run_now(equation: Any) -> bool:
    """True if an equation may be evaluated while the function is opened: it has no effects, and calls nothing on the
    host, since it may be in a branch that is not taken."""
    names = {name_of(equation)}.union(*map(primitives_in, bodies_of(equation)))
    return not equation.effects and "pure_callback" not in names


def evaluated_now(equation: Any, values: Sequence[KnownArray]) -> list[KnownArray]:
    """The results of an equation whose inputs are all known: arrays, even while JAX traces. A tracer in their place
    would keep all that reads it opaque."""
    on_host = _evaluated_on_host(equation, values)
    if on_host is not None:
        return on_host
    wide = any([needs_x64(v) for v in (*values, *[v.aval for v in equation.outvars])])
    with jax.ensure_compile_time_eval(), x64_if(wide):
        arrays = [v.array if is_key(v) else jax.numpy.asarray(v.array) for v in values]
        return [known(y) for y in evaluated(equation, arrays)]


# ---------------------------------------------------------------- on the host


def _broadcast(x: Any, *, shape: Any, broadcast_dimensions: Any, **_: Any) -> Any:
    widened = [1] * len(shape)
    for a, n in zip(broadcast_dimensions, x.shape, strict=True):
        widened[a] = n
    return np.broadcast_to(x.reshape(widened), shape)


def _iota(*, dtype: Any, shape: Any, dimension: int, **_: Any) -> Any:
    aligned = [-1 if a == dimension else 1 for a, _ in enumerate(shape)]
    return np.broadcast_to(np.arange(shape[dimension]).astype(dtype).reshape(aligned), shape)


def _without_zeros(function: Callable[..., Any]) -> Callable[..., Any]:
    """None where there is a zero, whose sign may differ."""
    return lambda x, y, **_: function(x, y) if x.dtype.kind != "f" or np.all(x) else None


def _of_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays, **_: function(*arrays)


_ON_HOST: dict[str, Callable[..., Any]] = {
    "add": _of_arrays(np.add),
    "and": _of_arrays(np.bitwise_and),
    "broadcast_in_dim": _broadcast,
    "ceil": _of_arrays(np.ceil),
    "convert_element_type": lambda x, *, new_dtype, **_: x.astype(new_dtype),
    "copy": _of_arrays(np.asarray),
    "div": lambda x, y, **_: x / y if x.dtype.kind == "f" else None,
    "eq": _of_arrays(np.equal),
    "ge": _of_arrays(np.greater_equal),
    "gt": _of_arrays(np.greater),
    "iota": _iota,
    "is_finite": _of_arrays(np.isfinite),
    "le": _of_arrays(np.less_equal),
    "lt": _of_arrays(np.less),
    "max": _without_zeros(np.maximum),
    "min": _without_zeros(np.minimum),
    "mul": _of_arrays(np.multiply),
    "ne": _of_arrays(np.not_equal),
    "neg": _of_arrays(np.negative),
    "nextafter": _of_arrays(np.nextafter),
    "or": _of_arrays(np.bitwise_or),
    "reshape": lambda x, *, new_sizes, dimensions, **_: x.reshape(new_sizes) if dimensions is None else None,
    "select_n": lambda which, *cases: np.where(which, *cases[::-1]) if which.dtype == bool else None,
    "sqrt": _of_arrays(np.sqrt),
    "squeeze": lambda x, *, dimensions, **_: np.squeeze(x, tuple(dimensions)),
    "sub": _of_arrays(np.subtract),
    "transpose": lambda x, *, permutation, **_: x.transpose(permutation),
}
"""Primitives that move numbers, compare them, or round once, so that NumPy gives the same result. Compiling each of
them with XLA would take longer than all other work on a small function. None where results might differ."""


def _evaluated_on_host(equation: Any, values: Sequence[Any]) -> list[KnownArray] | None:
    """The results that NumPy computes; None for an equation where they might differ from JAX's. It recurses into calls,
    which are nested a few levels deep at most."""
    if name_of(equation) in _CALLS:
        return _called_on_host(called_function(equation), values)
    function = _ON_HOST.get(equation.primitive.name)
    if function is None or equation.effects or any([is_key(v) for v in values]):
        return None
    (result,) = [v.aval for v in equation.outvars]
    described = (*values, result)
    if any([getattr(v.dtype, "kind", "") not in ("b", "i", "u", "f") for v in described]):
        return None
    if equation.primitive.name == "convert_element_type" and values[0].dtype.kind == "f" != result.dtype.kind:
        return None  # XLA decides what becomes of values that no integer holds
    with np.errstate(all="ignore"):
        y = function(*[np.asarray(v.array, v.dtype) for v in values], **equation.params)
    if y is None or y.shape != result.shape or y.dtype != result.dtype:
        return None
    return [known(y)]


_CALLS = {"jit", "custom_jvp_call"}


def _called_on_host(called: ClosedJaxpr | None, values: Sequence[Any]) -> list[Any] | None:
    """The results of a function for known arguments; None unless NumPy computes all of it."""
    if called is None:
        return None
    jaxpr = called.jaxpr
    inputs = *map(known, called.consts), *values
    at: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), inputs, strict=True))
    for equation in jaxpr.eqns:
        results = _evaluated_on_host(equation, read(equation.invars, at))
        if results is None:
            return None
        at.update(zip(equation.outvars, results, strict=True))
    return read(jaxpr.outvars, at)


# ---------------------------------------------------------------- equations that stay opaque


Closure = tuple[Callable[..., list[Any]], list[Variable], list[str]]
"""A function of arrays, the Variables whose arrays it takes, and the names of its primitives."""


def closure_of(equation: Any, operands: list[Value]) -> Closure:
    """An equation as a function of the arrays of Variables; known inputs are baked in.

    Args:
        equation: The equation; Variables or keys can hold its results.
        operands: Its inputs.
    """
    order = _in_order(equation, operands)
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
            pairs = zip(values, one.invars, strict=True)
            results[id(one)] = evaluated(one, [_array(v, u.aval, at, results) for v, u in pairs])
        return [jax.random.key_data(y) if is_key(y) else y for y in results[id(equation)]]

    names = [name_of(one) for one, _ in order]
    function.__name__ = shown_name(equation)
    return function, inputs, names


def shown_name(equation: Any) -> str:
    """The name of an equation in messages: that of the user's function if it calls one with a custom rule."""
    called = called_function(equation) if name_of(equation) in CUSTOM_RULES else None
    source = getattr(getattr(called and called.jaxpr, "debug_info", None), "func_src_info", None)
    return str(source).partition(" at ")[0] if source else name_of(equation)


def _in_order(equation: Any, operands: list[Value]) -> list[tuple[Any, list[Value]]]:
    """The equation and those that compute its delayed inputs, each with its inputs, in topological order."""
    in_order: dict[int, tuple[Any, list[Value]]] = {}
    pending = [(equation, operands, False)]
    while pending:
        one, values, ready = pending.pop()
        if id(one) in in_order:
            continue
        if ready:
            in_order[id(one)] = one, values
            continue
        pending.append((one, values, True))
        pending += [(v.equation, v.values, False) for v in values if isinstance(v, Delayed)]
    return list(in_order.values())


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
