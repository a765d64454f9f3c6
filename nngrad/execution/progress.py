"""A line on the terminal while something takes long."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._is_over:
                return
            columns = SpinnerColumn(), TextColumn("nngrad compiles {task.description}"), TimeElapsedColumn()
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            task = self._progress.add_task(self._what, total=None)
            self._progress.tasks[task].start_time -= PATIENCE
            self._progress.start()

    def stop(self) -> None:
        """Take it away."""
        with self._lock:
            self._is_over = True
            if self._progress is not None:
                self._progress.stop()
