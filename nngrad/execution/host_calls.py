"""Executables that call functions on the host, which may raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from ..graph.jaxpr import primitives_in
from ..graph.mesh import Mesh, mesh_of


def waited_for_on_meshes(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of arrays, whose results are waited for where they lie on several CPUs, for the reason that
    `Mesh.finished` gives: outside of a mesh, parameters that were trained on one are still there."""
    if jax.default_backend() != "cpu" or jax.device_count() == 1:
        return function

    def run(*arrays: Any) -> Any:
        results = function(*arrays)
        mesh = mesh_of(results if isinstance(results, tuple | list) else (results,))
        return results if mesh is None else mesh.finished(results)

    return run


def finished(jitted: Any, opaque: bool, mesh: Mesh | None = None) -> Callable[..., Any]:
    """`jitted`, whose results are waited for if it calls functions on the host.

    JAX hands results out before they are computed. What a function on the host raises would else come up when somebody
    reads a parameter or a gradient that has taken such a result, and what it held before is lost.

    Args:
        jitted: A jitted function of arrays, or one that calls several.
        opaque: Whether it holds code of the user's; other functions call none on the host.
        mesh: The devices that it runs on, if there are several.

    Raises:
        ValueError: It calls functions on the host, and there are several devices.
    """
    if not opaque:
        function: Callable[..., Any] = jitted
        return function
    waits: bool | None = None if hasattr(jitted, "trace") else True

    def run(*arrays: Any) -> Any:
        nonlocal waits
        if waits is None:
            waits = any(["callback" in name for name in primitives_in(jitted.trace(*arrays).jaxpr.jaxpr)])
            if waits and mesh is not None:
                raise ValueError("the graph calls a Python function on the host, which cannot be divided over "
                                 f"{mesh!r}; write it with F or F.jax_function, or run it outside of the mesh")
        results = jitted(*arrays)
        return jax.block_until_ready(results) if waits else results

    return run
