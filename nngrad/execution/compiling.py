"""What compiling costs: the seconds and counts of this process, and a line on the terminal while it takes long."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

PATIENCE = 2.0
"""Seconds before the line is shown."""


class Spent(NamedTuple):
    """Seconds and counts since the start of the process, or since they were forgotten."""

    trace: float = 0.0
    """Seconds in which JAX traced programs."""
    lower: float = 0.0
    """Seconds in which it lowered them."""
    compile: float = 0.0
    """Seconds in which XLA compiled them."""
    quick: int = 0
    """How many executables of the quick tier were compiled."""
    optimised: int = 0
    """How often the optimised tier has taken over from the quick one."""

    @property
    def waited(self) -> float:
        """Seconds in which somebody waited."""
        return self.trace + self.lower + self.compile


class Account:
    """What has been spent. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.total = Spent()

    def add(self, **spent: float) -> None:
        """Add seconds and counts, by the names that `Spent` has for them."""
        with self._lock:
            total = self.total
            self.total = total._replace(**{name: getattr(total, name) + more for name, more in spent.items()})

    def forget(self) -> None:
        """Begin at zero again."""
        with self._lock:
            self.total = Spent()


spent = Account()
"""What this process has spent."""


@contextmanager
def progress_shown(what: str) -> Iterator[None]:
    """Show that `what` is compiled, and since when, if that takes long and the standard error is a terminal."""
    stream = sys.stderr
    if stream is None or not stream.isatty() or threading.current_thread() is not threading.main_thread():
        yield
        return
    line = _ProgressLine(what)
    timer = threading.Timer(PATIENCE, line.start)
    timer.daemon = True
    with suppress(RuntimeError):  # where the interpreter ends, and there are no more threads
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        line.stop()


class _ProgressLine:
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
