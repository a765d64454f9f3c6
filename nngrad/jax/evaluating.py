"""Evaluation of single equations of a jaxpr."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import jaxpr_as_fun

from ..functions.key_data import is_key
from ..graph.jaxpr import alone
from ..graph.spec import x64_if
from .values import KnownArray, known, needs_x64


def evaluated(equation: Any, arrays: Sequence[Any]) -> list[Any]:
    """The results of an equation for these arrays."""
    return list(jaxpr_as_fun(alone(equation))(*arrays))


def evaluated_now(equation: Any, values: Sequence[KnownArray]) -> list[KnownArray]:
    """The results of an equation whose inputs are all known."""
    on_host = _evaluated_on_host(equation, values)
    if on_host is not None:
        return [on_host]
    wide = any([needs_x64(v) for v in (*values, *[v.aval for v in equation.outvars])])
    with jax.ensure_compile_time_eval(), x64_if(wide):
        arrays = [v.array if is_key(v) else jax.numpy.asarray(v.array) for v in values]
        return [known(y) for y in evaluated(equation, arrays)]


# ---------------------------------------------------------------- on the host


def _broadcast(x: Any, *, shape: Any, broadcast_dimensions: Any, **_: Any) -> Any:
    own = [1] * len(shape)
    for a, n in zip(broadcast_dimensions, x.shape, strict=True):
        own[a] = n
    return np.broadcast_to(x.reshape(own), shape)


def _iota(*, dtype: Any, shape: Any, dimension: int, **_: Any) -> Any:
    own = [-1 if a == dimension else 1 for a, _ in enumerate(shape)]
    return np.broadcast_to(np.arange(shape[dimension]).astype(dtype).reshape(own), shape)


def _of_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays, **_: function(*arrays)


_ON_HOST: dict[str, Callable[..., Any]] = {
    "add": _of_arrays(np.add),
    "and": _of_arrays(np.bitwise_and),
    "broadcast_in_dim": _broadcast,
    "convert_element_type": lambda x, *, new_dtype, **_: x.astype(new_dtype),
    "eq": _of_arrays(np.equal),
    "ge": _of_arrays(np.greater_equal),
    "gt": _of_arrays(np.greater),
    "iota": _iota,
    "le": _of_arrays(np.less_equal),
    "lt": _of_arrays(np.less),
    "mul": _of_arrays(np.multiply),
    "ne": _of_arrays(np.not_equal),
    "neg": _of_arrays(np.negative),
    "or": _of_arrays(np.bitwise_or),
    "reshape": lambda x, *, new_sizes, dimensions, **_: x.reshape(new_sizes) if dimensions is None else None,
    "squeeze": lambda x, *, dimensions, **_: np.squeeze(x, tuple(dimensions)),
    "sub": _of_arrays(np.subtract),
    "transpose": lambda x, *, permutation, **_: x.transpose(permutation),
}
"""What moves numbers, compares them, or is rounded once, so that NumPy gives the same: to have XLA compile each of them
takes longer than all else that is done with a small function. None where it cannot be said so."""


def _evaluated_on_host(equation: Any, values: Sequence[KnownArray]) -> KnownArray | None:
    """The results that NumPy computes; None for an equation where they might differ from JAX's."""
    function = _ON_HOST.get(equation.primitive.name)
    if function is None or equation.effects or any([is_key(v) for v in values]):
        return None
    (result,) = [v.aval for v in equation.outvars]
    described = (*values, result)
    if any([getattr(v.dtype, "kind", "") not in ("b", "i", "u", "f") for v in described]):
        return None
    if equation.primitive.name == "convert_element_type" and values[0].dtype.kind == "f" != result.dtype.kind:
        return None  # what becomes of fractions that no integer holds is XLA's to say
    with np.errstate(all="ignore"):
        found = function(*[np.asarray(v.array, v.dtype) for v in values], **equation.params)
    if found is None or found.shape != result.shape or found.dtype != result.dtype:
        return None
    return known(found)
