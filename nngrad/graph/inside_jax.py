"""What nngrad takes from inside of JAX, which has it in no public place: any version may move it.

Nothing else in nngrad names those places. Without one of them nngrad computes the same; `without` says what is slower
then, or refused.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple


class Use(NamedTuple):
    """Something that is taken."""

    module: str
    names: tuple[str, ...]
    without: str
    """What is so where a version of JAX does not have it."""


DISK = "no executables are kept on disk"
USES = (
    Use("jax._src.core", ("trace_ctx",),
        "that values are changed where JAX traces a function is not refused by name, and a Ctrl-C that comes just as "
        "JAX turns to another function may leave it there"),
    Use("jax._src.core", ("get_axis_env",), "functions of JAX's are traced anew at each call"),
    Use("jax._src.xla_bridge", ("backends_are_initialized",),
        "a forked process says that it cannot compute, though JAX may not have been started"),
    Use("jax._src.distributed", ("global_state",), "several processes cannot be joined by nn.hosts"),
    Use("jax._src.config", ("trace_context",), DISK),
    Use("jax._src.tree_util", ("dispatch_registry",), DISK),
    Use("jax._src.lib", ("xla_client.DeviceList", "xla_client._xla.pjit"), DISK),
    Use("jax._src.interpreters.pxla", (
        "UnloadedMeshExecutable", "MeshExecutableFastpathData", "JitGlobalCppCacheKeys", "cc_shard_arg"), DISK),
)  # fmt: skip


def taken(name: str) -> Any:
    """What is called `name`; None where this version of JAX has no such thing. It is one of the names in `USES`."""
    (module,) = {use.module for use in USES if name in use.names}
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return found


def missing_in_jax() -> list[str]:
    """What this version of JAX does not have, and what is so without it."""
    return [
        f"{use.module}.{name}: {use.without}" for use in USES for name in use.names if taken(name) is None
    ]  # fmt: skip


_get_axis_env = taken("get_axis_env")


def named_axes() -> tuple[tuple[Any, int], ...]:
    """Name and size of the axes that have a name where JAX is tracing: those of `jax.vmap(..., axis_name=...)` and
    `jax.shard_map`, over which collectives such as `lax.psum` go. What equals nothing else where they are not known.
    What is traced now may hold for these alone."""
    return ((object(), 0),) if _get_axis_env is None else tuple(_get_axis_env().axis_sizes.items())
