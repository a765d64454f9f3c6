"""A worker thread that stays consistent under interrupts: its work has either not begun, or is done.

`threading.Thread.start` and the conditions of `threading` are written in Python: an interrupt within them may leave an
orphaned thread, or becomes a RuntimeError. The operations used here are atomic.
"""

from __future__ import annotations

import _thread
import queue
import threading
import time
from collections.abc import Callable

_SECONDS = 0.1
"""Seconds between checks for the end of the work, in addition to notification."""


class OwnThread:
    """A thread that runs `work` once; `work` raises nothing. Signals never interrupt it, since Python handles them in
    the main thread."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._claim = threading.Lock()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_over = False
        self._ident: int | None = None

    def start(self) -> None:
        """Start the thread unless it has started."""
        if not self._claim.locked():
            _thread.start_new_thread(self._run, ())  # a second one, if any, ends at once

    def wait(self, timeout: float = float("inf")) -> None:
        """Wait until a started thread is done, for at most `timeout` seconds."""
        until = time.monotonic() + timeout
        while not self._is_over and time.monotonic() < until:
            try:
                self._bell.get(timeout=_SECONDS)
            except queue.Empty:
                continue

    def end(self, timeout: float) -> None:
        """Prevent the thread from starting, or wait at most `timeout` seconds until it is done; not for itself."""
        if self._claim.acquire(blocking=False):
            self._is_over = True
        elif self._ident != threading.get_ident():
            self.wait(timeout)

    def _run(self) -> None:
        if self._claim.acquire(blocking=False):
            self._ident = threading.get_ident()
            try:
                self._work()
            finally:
                self._is_over = True
                self._bell.put(None)
