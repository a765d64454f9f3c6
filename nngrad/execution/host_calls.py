"""Executables that call functions on the host, which may raise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax

from ..graph.jaxpr import primitives_in


def has_opaque(arguments: Iterable[Any]) -> bool:
    """Whether code of the user's is among the static arguments of ops."""
    return any([getattr(a, "opaque", False) or (isinstance(a, tuple) and has_opaque(a)) for a in arguments])


def finished(jitted: Any, opaque: bool) -> Callable[..., Any]:
    """`jitted`, whose results are waited for if it calls functions on the host.

    JAX hands results out before they are computed. What a function on the host raises would else come up when somebody
    reads a parameter or a gradient that has taken such a result, and what it held before is lost.

    Args:
        jitted: A jitted function of arrays, or one that calls several.
        opaque: Whether it holds code of the user's; other functions call none on the host.
    """
    if not opaque:
        function: Callable[..., Any] = jitted
        return function
    waits: bool | None = None if hasattr(jitted, "trace") else True

    def run(*arrays: Any) -> Any:
        nonlocal waits
        if waits is None:
            waits = any(["callback" in name for name in primitives_in(jitted.trace(*arrays).jaxpr.jaxpr)])
        results = jitted(*arrays)
        return jax.block_until_ready(results) if waits else results

    return run
