"""The state of the process: refuse to compute in forked children, which lack JAX's threads; refuse to change stored
values while JAX traces; and repair what an interrupt leaves behind in JAX.

The private names of JAX that nngrad uses; any version may move them.

No other file in nngrad names them. Without any of them, nngrad computes the same results; `without` says what becomes
slower or is refused.
"""

from __future__ import annotations

import functools
import importlib
import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import jax


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
    `jax.shard_map`, along which collectives such as `lax.psum` run. If they are unknown, a value that equals nothing
    else. Results of the current trace may be valid only for these axes."""
    return ((object(), 0),) if _get_axis_env is None else tuple(_get_axis_env().axis_sizes.items())


_trace = taken("trace_ctx")
_is_started = taken("backends_are_initialized")


class _Fork(threading.local):
    """Facts recorded by the forking thread, the only thread that exists in the child."""

    with_jax: bool = False


class Process:
    """The state of the process that nngrad runs in."""

    cannot_compute: bool = False
    """Whether JAX was initialised before this process was forked."""


_fork = _Fork()


def check_process() -> None:
    """Raise an error in a process in which nothing can be computed, where JAX would hang.

    Raises:
        RuntimeError: The process was forked after JAX had been initialised.
    """
    if Process.cannot_compute:
        raise RuntimeError(
            "this process was forked after JAX had been started, and JAX's threads do not live in it, so that nothing "
            "can be computed here. Start processes with multiprocessing.get_context('spawn') or 'forkserver', or fork "
            "them before the first computation"
        )


def check_not_traced(what: str, instead: str) -> None:
    """Refuse to run `what` while JAX traces: it would store tracers as values.

    Raises:
        TypeError: JAX is tracing a function in this thread.
    """
    if _trace is not None and not _trace.is_top_level():
        raise TypeError(
            f"{what} cannot be called where JAX traces a function (jax.jit, jax.grad, jax.vmap): it changes values "
            f"that are kept. It is compiled already; for a function to be traced use {instead}"
        )


def trace_of_now() -> Any:
    """JAX's current trace in this thread."""
    return None if _trace is None else _trace.trace


def go_on_in(trace: Any) -> None:
    """Restore JAX's trace in this thread to the one before an interruption: if an interrupt comes just as JAX enters
    another trace, JAX never leaves it, and all later computations fail."""
    if _trace is not None and _trace.trace is not trace:
        _trace.set_trace(trace)


def _before_fork() -> None:
    # This may wait for another thread to initialise JAX, which the child could not do.
    _fork.with_jax = _is_started is None or _is_started()


def _in_child() -> None:
    Process.cannot_compute = _fork.with_jax


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)


_CACHES = os.path.join("jax", "_src", "util.py")


def unharmed(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, made safe against interrupts while JAX traces it: they break neither later calls nor other threads.
    """

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        before = trace_of_now()
        try:
            return function(*arguments, **options)
        except BaseException as error:
            go_on_in(before)
            if not has_met_half_made(error):
                raise
        return function(*arguments, **options)

    return run


def has_met_half_made(error: BaseException) -> bool:
    """Whether a call failed on an unfinished entry in JAX's caches, so that repeating it works.

    Such entries, and one that `error` itself has just left, are dropped, with everything else in the caches. Some
    versions of JAX (0.10.2 is one) call Python between marking an entry as being made and starting to record failures.
    If an interrupt comes there, the entry never learns of it: the same thread then always gets a RecursionError from
    it, and any other thread waits forever.
    """
    met = isinstance(error, RecursionError) and str(error).startswith("Recursively calling <weakref")
    if met or _fell_into_a_cache(error):
        jax.clear_caches()
    return met


def _fell_into_a_cache(error: BaseException) -> bool:
    at = error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        if code.co_name == "<lambda>" and code.co_filename.endswith(_CACHES):
            return True
        at = at.tb_next
    return False
