"""What is being written when the interpreter ends is finished, or the exit code is not 0."""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 (it closes the pools)
import os
import sys
import threading
from collections.abc import Callable

finished_at_exit: set[Callable[[], None]] = set()
"""What is called then."""
_codes: list[int] = []


def _finish() -> None:
    for finish in list(finished_at_exit):
        try:
            finish()
        except BaseException as error:
            print(f"nngrad: {type(error).__name__}: {error}", file=sys.stderr)
            _codes.append(130 if isinstance(error, KeyboardInterrupt) else 1)


def _end() -> None:
    """Python takes no notice of what fails while it ends."""
    if _codes:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_codes[0])


# Before Python closes its pools of threads, which orbax writes with, so that they must be known here already; what
# `atexit` calls comes after that.
getattr(threading, "_register_atexit", atexit.register)(_finish)
atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=finished_at_exit.clear)  # the threads are the parent's
