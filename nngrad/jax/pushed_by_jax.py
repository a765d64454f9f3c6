"""The derivative of a graph by JAX, where JAX cannot transpose what the graph's own derivative is made of.

Reverse mode transposes a pushforward. JAX 0.8 transposes those scans alone that its own forward mode has made; so
there a graph with loops is a function to JAX like any other, and its derivatives are right and cost what they cost
in JAX.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .calls import Graph


@functools.cache
def jax_transposes_loops() -> bool:
    """Whether JAX can transpose a scan that its own forward mode has not made, as JAX 0.8 cannot. Reverse mode asks
    that of a pushforward."""

    def loop(x: Any) -> Any:
        return jax.lax.scan(lambda h, _: (h + x, None), jnp.zeros(()), None, length=2)[0]

    try:
        jax.make_jaxpr(jax.linear_transpose(loop, 0.0))(0.0)
    except AssertionError:
        return False
    return True


def pushed_by_jax(graph: Graph, moving: tuple[int, ...]) -> Callable[..., Any]:
    """The pushforward of a graph (see `Graph`), by `jax.jvp` of what it computes."""
    count = len(graph.inputs)

    def run(*given: Any) -> list[Any]:
        def of_moving(*moved: Any) -> list[Any]:
            arrays = list(given[:count])
            for i, array in zip(moving, moved, strict=True):
                arrays[i] = array
            return list(graph.run(*arrays))

        values, tangents = jax.jvp(of_moving, [given[i] for i in moving], list(given[count:]))
        return [*values, *[t for t, y in zip(tangents, graph.outputs, strict=True) if y.differentiable]]

    return run
