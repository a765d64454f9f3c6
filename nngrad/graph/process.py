"""Where nothing can be computed: in forked processes, since JAX computes with threads and none but the forking one is
there in the child; and where JAX traces, what changes values that are kept."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

try:  # JAX has it in no public place
    from jax._src import core

    _traced: Any = core.trace_ctx
    _is_outside = _traced.is_top_level
except (ImportError, AttributeError):
    _traced = None

    def _is_outside() -> bool:
        """Whether JAX traces nothing in this thread; True where that is not known."""
        return True


class _Fork(threading.local):
    """What the thread that forks knew before: the child has that thread alone."""

    with_jax: bool = False


class Process:
    """What nngrad knows of the process that it runs in."""

    cannot_compute: bool = False
    """Whether JAX was started before this process was forked."""


_fork = _Fork()


def check_process() -> None:
    """Say that nothing can be computed in this process, where JAX would wait for ever.

    Raises:
        RuntimeError: The process was forked after JAX had been started.
    """
    if Process.cannot_compute:
        raise RuntimeError(
            "this process was forked after JAX had been started, and JAX's threads do not live in it, so that nothing "
            "can be computed here. Start processes with multiprocessing.get_context('spawn') or 'forkserver', or fork "
            "them before the first computation"
        )


def check_not_traced(what: str, instead: str) -> None:
    """Say that `what` cannot be a part of what JAX traces: it would leave JAX's placeholders where values belong.

    Raises:
        TypeError: JAX is tracing a function, in this thread.
    """
    if not _is_outside():
        raise TypeError(
            f"{what} cannot be called where JAX traces a function (jax.jit, jax.grad, jax.vmap): it changes values "
            f"that are kept. It is compiled already; for a function to be traced use {instead}"
        )


def trace_of_now() -> Any:
    """What JAX traces in this thread."""
    return None if _traced is None else _traced.trace


def go_on_in(trace: Any) -> None:
    """Let JAX trace in this thread what it did before something was interrupted: where an interrupt comes just as it
    turns to another function, JAX never turns back, and all that is computed from then on fails."""
    if _traced is not None and _traced.trace is not trace:
        _traced.set_trace(trace)


def _before_fork() -> None:
    # JAX tells no other way. It may wait for JAX to be started by another thread, which the child could not.
    is_started = getattr(sys.modules.get("jax._src.xla_bridge"), "backends_are_initialized", None)
    _fork.with_jax = is_started is not None and is_started()


def _in_child() -> None:
    Process.cannot_compute = _fork.with_jax


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
