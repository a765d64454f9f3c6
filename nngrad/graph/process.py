"""The process: refuse to compute in forked children, which lack JAX's threads; refuse to change stored values while JAX
traces; and repair JAX's state after an interrupt.

Private names of JAX are listed in `USES`, and no other file names them. Any version of JAX may move them: nngrad then
computes the same results, and `Use.without` says what becomes slower or is refused.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import importlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax


class Use(NamedTuple):
    """A private name that nngrad uses."""

    module: str
    names: tuple[str, ...]
    without: str
    """What changes with a version of JAX that lacks it."""


USES = (
    Use("jax._src.core", ("trace_ctx",),
        "no clear error if values are changed while JAX traces, and a Ctrl-C just as JAX enters another trace may "
        "leave it there"),
    Use("jax._src.core", ("get_axis_env",), "functions of JAX are traced anew at each call"),
    Use("jax._src.xla_bridge", ("backends_are_initialized",),
        "a forked process refuses to compute even if JAX had not been initialised"),
)  # fmt: skip


def jax_internal(name: str) -> Any:
    """The object called `name`, one of the names in `USES`; None if this version of JAX lacks it."""
    (module,) = {use.module for use in USES if name in use.names}
    try:
        value = importlib.import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError):
        return None
    return value


def missing_in_jax() -> list[str]:
    """The names that this version of JAX lacks, each with what changes without it."""
    return [
        f"{use.module}.{name}: {use.without}" for use in USES for name in use.names if jax_internal(name) is None
    ]  # fmt: skip


_get_axis_env = jax_internal("get_axis_env")


def named_axes() -> tuple[tuple[Any, int], ...]:
    """Name and size of each named axis of the current JAX trace: those of `jax.vmap(..., axis_name=...)` and
    `jax.shard_map`, along which collectives such as `lax.psum` run. If they are unknown, a value that equals nothing
    else. Results of the current trace may be valid only for these axes."""
    return ((object(), 0),) if _get_axis_env is None else tuple(_get_axis_env().axis_sizes.items())


_trace = jax_internal("trace_ctx")
_is_started = jax_internal("backends_are_initialized")


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
            "cannot compute in this process: it was forked after JAX had been initialised, and has none of JAX's "
            "threads. Start processes with multiprocessing.get_context('spawn') or 'forkserver', or fork them before "
            "the first computation"
        )


def check_not_traced(what: str, instead: str) -> None:
    """Refuse to run `what` while JAX traces: it would store tracers as values.

    Raises:
        TypeError: JAX is tracing a function in this thread.
    """
    if _trace is not None and not _trace.is_top_level():
        raise TypeError(
            f"{what} cannot be called while JAX traces a function (jax.jit, jax.grad, jax.vmap), because it changes "
            f"stored values. It is compiled already; to trace it, use {instead}"
        )


def at_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, with concrete results even where JAX traces the code around: cells hold them after the trace."""

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        if _trace is not None and _trace.is_top_level():
            return function(*arguments, **options)
        with _outside():
            return function(*arguments, **options)

    return run


# Within `ensure_compile_time_eval` JAX also computes constants of functions as it traces them: other bits, perhaps.
_outside = getattr(jax.core, "eval_context", jax.ensure_compile_time_eval)


def current_trace() -> Any:
    """JAX's current trace in this thread."""
    return None if _trace is None else _trace.trace


def restore_trace(trace: Any) -> None:
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


_lowering: dict[None, int] = {}
"""The thread in which JAX lowers its first function."""
_has_lowered: list[bool] = []


def lower_first() -> None:
    """Let JAX lower its first function where no interrupt comes, unless it has.

    It then imports modules of jaxlib. They register MLIR's dialects in C while they run, so one that an interrupt ended
    half-way could not be imported again, and nothing would be compiled any more. Signals never interrupt another
    thread, since Python handles them in the main one. `threading.Thread.start` and the conditions of `threading` are
    written in Python: an interrupt within them may leave an orphaned thread. The operations used here are atomic.
    """
    while not _has_lowered:
        if not _lowering:
            _thread.start_new_thread(_lower_first, ())  # a second one, if any, ends at once
        time.sleep(_SECONDS)


def _lower_first() -> None:
    if _lowering.setdefault(None, threading.get_ident()) == threading.get_ident():
        with contextlib.suppress(Exception):  # whoever needs it meets the error again
            jax.jit(lambda x: x).trace(0.0).lower(lowering_platforms=("cpu",))
        _has_lowered.append(True)


_SECONDS = 0.005
"""Seconds between checks for the end of the first lowering."""


def interrupt_safe(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, made safe against interrupts while JAX traces it: they break neither later calls nor other threads.
    """

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        lower_first()
        before = current_trace()
        try:
            return function(*arguments, **options)
        except BaseException as error:
            restore_trace(before)
            if not hit_unfinished_entry(error):
                raise
        return function(*arguments, **options)

    return run


def hit_unfinished_entry(error: BaseException) -> bool:
    """True if a call failed on an unfinished entry in JAX's caches, so that repeating it works.

    Such entries, and one that `error` itself has just left, are dropped, with everything else in the caches. Some
    versions of JAX (0.10.2 is one) call Python between marking an entry as being made and starting to record failures.
    If an interrupt comes there, the entry never learns of it: the same thread then always gets a RecursionError from
    it, and any other thread waits forever.
    """
    met = isinstance(error, RecursionError) and str(error).startswith("Recursively calling <weakref")
    if met or _interrupted_in_cache(error):
        jax.clear_caches()
    return met


def _interrupted_in_cache(error: BaseException) -> bool:
    at = error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        if code.co_name == "<lambda>" and code.co_filename.endswith(_CACHES):
            return True
        at = at.tb_next
    return False
