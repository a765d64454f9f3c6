"""What is in a JAX function that was traced."""

from __future__ import annotations

from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr


def primitives_in(jaxpr: Jaxpr) -> set[str]:
    """The names of the primitives in it, and in the functions inside."""
    names = set()
    pending: list[Any] = [jaxpr]
    while pending:
        for eqn in pending.pop().eqns:
            names.add(eqn.primitive.name)
            for value in eqn.params.values():
                for inner in value if isinstance(value, tuple | list) else (value,):
                    if isinstance(inner, ClosedJaxpr):
                        pending.append(inner.jaxpr)
                    elif isinstance(inner, Jaxpr):
                        pending.append(inner)
    return names
