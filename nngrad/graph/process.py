"""Forked processes: JAX computes with threads, and none but the forking one is there in the child."""

from __future__ import annotations

import os
import sys
import threading


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


def _before_fork() -> None:
    # JAX tells no other way. It may wait for JAX to be started by another thread, which the child could not.
    is_started = getattr(sys.modules.get("jax._src.xla_bridge"), "backends_are_initialized", None)
    _fork.with_jax = is_started is not None and is_started()


def _in_child() -> None:
    Process.cannot_compute = _fork.with_jax


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
