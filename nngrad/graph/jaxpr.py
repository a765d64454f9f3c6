"""What is in a JAX function that was traced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
from jax.extend.core import Jaxpr

CUSTOM_RULES = {"custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"}
"""Primitives whose derivative the function's author has set."""


_MUCH = {
    "dot_general", "ragged_dot", "ragged_dot_general", "conv_general_dilated", "fft", "scan", "while", "linear_solve",
}
"""Primitives of `jax.lax` that do more arithmetic for each element the larger the arrays are."""
_LITTLE = {
    *CUSTOM_RULES, "jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "custom_lin",
    "add_any", "copy", "random_bits", "random_unwrap", "random_wrap", "scatter-add", "scatter-mul", "threefry2x32",
}
"""Primitives beside those of `jax.lax` that do a few operations for each element, or what functions inside do."""


def does_much(jaxpr: Jaxpr) -> bool:
    """Whether it does much arithmetic for each element: products, loops, decompositions, and whatever is not known."""
    names = primitives_in(jaxpr) - _LITTLE
    return not _MUCH.isdisjoint(names) or not all([hasattr(jax.lax, f"{name}_p") for name in names])


def primitives_in(jaxpr: Jaxpr) -> set[str]:
    """The names of the primitives in it, and in the functions inside."""
    return {eqn.primitive.name for eqn in equations_in(jaxpr)}


def equations_in(jaxpr: Jaxpr) -> Iterator[Any]:
    """Its equations, and those of the functions inside."""
    pending: list[Any] = [jaxpr]
    while pending:
        for eqn in pending.pop().eqns:
            yield eqn
            for value in eqn.params.values():
                for inner in value if isinstance(value, tuple | list) else (value,):
                    while not isinstance(inner, Jaxpr) and hasattr(inner, "jaxpr"):
                        inner = inner.jaxpr
                    if isinstance(inner, Jaxpr):
                        pending.append(inner)
