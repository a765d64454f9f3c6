"""Work in the background: one compilation at a time, and none that nobody waits for any more."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections import deque
from contextlib import suppress
from typing import Protocol

from .progress import PATIENCE


class Worker(Protocol):
    """What has something to do in the background."""

    def work(self) -> None:
        """Do it. It raises nothing."""


class _Queue:
    """Who waits, and the thread that works; there is one as long as somebody waits."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting: deque[weakref.ref[Worker]] = deque()
        self.thread: threading.Thread | None = None
        self.is_closed = False

    def next(self) -> Worker | None:
        """The next that is still there; None ends the thread."""
        with self.lock:
            while self.waiting:
                worker = self.waiting.popleft()()
                if worker is not None:
                    return worker
            self.thread = None
            return None

    def run(self) -> None:
        """Let one after another work."""
        while (worker := self.next()) is not None:
            with suppress(BaseException):  # or who comes later would wait for a thread that is gone
                worker.work()
            del worker  # or it would be held until there is another


_queue = _Queue()


def request(worker: Worker) -> None:
    """Let `worker` work in the background, after those that wait already, if it is still there then."""
    queue = _queue
    with queue.lock:
        if queue.is_closed:
            return
        queue.waiting.append(weakref.ref(worker))
        if queue.thread is None:
            thread = threading.Thread(target=queue.run, name="nngrad-compiler", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter ends, or there may be no more threads
                queue.waiting.clear()
            else:
                queue.thread = thread


def wait(timeout: float | None = None) -> bool:
    """Wait until nothing is left to do in the background; returns whether that is so."""
    thread = _queue.thread
    if thread is not None:
        thread.join(timeout)
    return thread is None or not thread.is_alive()


def _leave() -> None:
    """Wait for the compilation that has begun: XLA cannot be stopped, and a thread that came back from it to an
    interpreter that is gone would abort the process. What has not begun is dropped; Ctrl-C leaves at once."""
    with _queue.lock:
        _queue.is_closed = True
        _queue.waiting.clear()
    try:
        if not wait(PATIENCE) and sys.stderr is not None and sys.stderr.isatty():
            print("nngrad compiles in the background, which cannot be stopped; Ctrl-C leaves at once", file=sys.stderr)
        wait()
    except KeyboardInterrupt:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)


def _in_child() -> None:
    """A forked process has none of the threads, and the lock may have been held."""
    _queue.__init__()  # type: ignore[misc]


atexit.register(_leave)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
