"""The private names of JAX that nngrad uses; any version may move them.

No other file in nngrad names them. Without any of them, nngrad computes the same results; `without` says what becomes
slower or is refused.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple


class Use(NamedTuple):
    """A private name that nngrad uses."""

    module: str
    names: tuple[str, ...]
    without: str
    """What changes with a version of JAX that lacks it."""


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
    """The object called `name`, one of the names in `USES`; None if this version of JAX lacks it."""
    (module,) = {use.module for use in USES if name in use.names}
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return found


def missing_in_jax() -> list[str]:
    """The names that this version of JAX lacks, each with what changes without it."""
    return [
        f"{use.module}.{name}: {use.without}" for use in USES for name in use.names if taken(name) is None
    ]  # fmt: skip


_get_axis_env = taken("get_axis_env")


def named_axes() -> tuple[tuple[Any, int], ...]:
    """Name and size of each named axis of the current JAX trace: those of `jax.vmap(..., axis_name=...)` and
    `jax.shard_map`, along which collectives such as `lax.psum` run. Where they are unknown, a value that equals nothing
    else. What is traced now may hold only for these axes."""
    return ((object(), 0),) if _get_axis_env is None else tuple(_get_axis_env().axis_sizes.items())
