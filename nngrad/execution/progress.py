"""A line on the terminal while something takes long."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

PATIENCE = 2.0
"""Seconds before it is shown."""


@contextmanager
def shown(what: str) -> Iterator[None]:
    """Show that `what` is compiled, and since when, if that takes long and the standard error is a terminal."""
    stream = sys.stderr
    if stream is None or not stream.isatty() or threading.current_thread() is not threading.main_thread():
        yield
        return
    line = _Line(what)
    timer = threading.Timer(PATIENCE, line.start)
    timer.daemon = True
    with suppress(RuntimeError):  # where the interpreter ends, and there are no more threads
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        line.stop()


class _Line:
    """The line. It may be stopped before it was started, and is not shown then."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._progress: Any = None
        self._is_over = False

    def start(self) -> None:
        """Show it."""
        from rich.console import Console
        from rich.errors import LiveError
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = SpinnerColumn(), TextColumn("nngrad compiles {task.description}"), TimeElapsedColumn()
        with self._lock, suppress(LiveError):  # the program draws something of its own
            if self._is_over:
                return
            progress = Progress(*columns, console=Console(stderr=True), transient=True)
            task = progress.add_task(self._what, total=None)
            progress.tasks[task].start_time = progress.get_time() - PATIENCE
            progress.start()
            self._progress = progress

    def stop(self) -> None:
        """Take it away."""
        with self._lock:
            self._is_over = True
            if self._progress is not None:
                self._progress.stop()
