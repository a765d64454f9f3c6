"""The structure of a JAX function that was traced, as a key: equal keys are functions that compute the same."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from ..graph.jaxpr import CUSTOM_RULES

_SMALL = 1 << 12
"""Bytes up to which an array that is baked into a function is compared by its values, and not by identity."""


class Held:
    """Something that is compared by identity, and kept alive so that nothing else takes its place."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def structure_of(jaxpr: Jaxpr, derivatives: bool = True) -> tuple[Hashable, ...]:
    """Returns what `jaxpr` computes, as nested tuples without names: primitives, their parameters, and wiring.

    It recurses into the functions inside (bodies of loops, branches), which are nested a few levels deep at most.

    Args:
        jaxpr: The function.
        derivatives: Whether what authors have set as derivatives of functions inside has a part in it. JAX makes
            functions of these anew each time, so that no two would be equal.
    """
    numbers: dict[Any, int] = {}
    contexts: dict[int, str] = {}

    def number(v: Any) -> Hashable:
        if isinstance(v, Literal):
            value = np.asarray(v.val)
            return str(v.aval), b"nan" if value.ndim == 0 and value != value else value.tobytes()  # every NaN is one
        return numbers.setdefault(v, len(numbers))

    def context(eqn: Any) -> str:
        ctx = getattr(eqn, "ctx", None)
        return contexts.setdefault(id(ctx), repr(ctx))

    inputs = tuple([(number(v), str(v.aval)) for v in (*jaxpr.constvars, *jaxpr.invars)])
    steps = tuple([
        (
            eqn.primitive,
            tuple([number(v) for v in eqn.invars]),
            tuple([(number(v), str(v.aval)) for v in eqn.outvars]),
            tuple([
                (name, frozen(value, derivatives))
                for name, value in sorted(eqn.params.items())
                if derivatives or eqn.primitive.name not in CUSTOM_RULES or isinstance(value, ClosedJaxpr | Jaxpr)
            ]),
            context(eqn),
        )
        for eqn in jaxpr.eqns
    ])
    return inputs, steps, tuple([number(v) for v in jaxpr.outvars])


def frozen(value: Any, derivatives: bool = True) -> Hashable:
    """A parameter of a primitive as something to compare by: by value where that is safe, else by identity."""
    if isinstance(value, ClosedJaxpr):
        return structure_of(value.jaxpr, derivatives), frozen(tuple(value.consts), derivatives)
    if isinstance(value, Jaxpr):
        return structure_of(value, derivatives)
    if isinstance(value, tuple | list):
        return type(value), tuple([frozen(v, derivatives) for v in value])
    if isinstance(value, dict):
        return tuple([(frozen(k, derivatives), frozen(v, derivatives)) for k, v in value.items()])
    if isinstance(value, float):
        return type(value), repr(value)  # 0.0 and -0.0 are equal, and are not the same
    if isinstance(value, np.ndarray | np.generic) and value.nbytes <= _SMALL:
        return str(value.dtype), value.shape, value.tobytes()
    try:
        hash(value)
    except TypeError:
        return Held(value)
    return Held(value) if isinstance(value, jax.Array) else (type(value), value)
