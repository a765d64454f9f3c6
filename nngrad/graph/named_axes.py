"""The axes that have a name where JAX is tracing: those of `jax.vmap(..., axis_name=...)` and `jax.shard_map`, over
which collectives such as `lax.psum` go."""

from __future__ import annotations

from typing import Any

from .inside_jax import taken

_get_axis_env = taken("get_axis_env")


def named_axes() -> tuple[tuple[Any, int], ...]:
    """Name and size of each; what equals nothing else where that is not known. What is traced now may hold for these
    alone."""
    return ((object(), 0),) if _get_axis_env is None else tuple(_get_axis_env().axis_sizes.items())
