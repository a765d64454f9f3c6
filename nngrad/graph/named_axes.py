"""The axes that have a name where JAX is tracing: those of `jax.vmap(..., axis_name=...)` and `jax.shard_map`, over
which collectives such as `lax.psum` go."""

from __future__ import annotations

from typing import Any

try:  # JAX has it in no public place
    from jax._src.core import get_axis_env
except ImportError:
    get_axis_env = None  # type: ignore[assignment]


def named_axes() -> tuple[tuple[Any, int], ...]:
    """Name and size of each; none where that is not known. What is traced now may hold for these alone."""
    return () if get_axis_env is None else tuple(get_axis_env().axis_sizes.items())
