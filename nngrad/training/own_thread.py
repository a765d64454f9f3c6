"""Work in a thread of its own, which an interrupt leaves either to be begun or to be ended, wherever it comes.

`threading.Thread.start` and the conditions of `threading` are written in Python: an interrupt within them may leave a
thread of which nobody knows, or becomes a RuntimeError. What is used here is done as a whole or not at all.
"""

from __future__ import annotations

import _thread
import queue
import threading
import time
from collections.abc import Callable

_SECONDS = 0.1
"""How often it is looked whether it is over, beside being told."""


class OwnThread:
    """A thread that does `work` once, which raises nothing. Signals never interrupt it, since Python gives them to the
    main thread."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._claim = threading.Lock()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_over = False
        self._ident: int | None = None

    def start(self) -> None:
        """Let it work, unless it does."""
        if not self._claim.locked():
            _thread.start_new_thread(self._run, ())  # it may be the second one, and then ends at once

    def wait(self, timeout: float = float("inf")) -> None:
        """Wait until it has worked, after a start, for so many seconds at most."""
        until = time.monotonic() + timeout
        while not self._is_over and time.monotonic() < until:
            try:
                self._bell.get(timeout=_SECONDS)
            except queue.Empty:
                continue

    def end(self, timeout: float) -> None:
        """Never let it begin; or wait until it has worked, for so many seconds at most, but not for itself."""
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
