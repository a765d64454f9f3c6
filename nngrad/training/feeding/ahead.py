"""Work of a thread of its own, a bounded number of results ahead."""

from __future__ import annotations

import contextvars
import functools
import queue
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from ..own_thread import OwnThread

_SECONDS = 0.1
"""How often either side looks for itself, should it not be told: what tells may be lost to an interrupt."""
_PATIENCE = 5.0
"""How long its end is waited for, in seconds: code of others may not return."""


class Ahead:
    """Results of an iterator, computed in a thread of its own in the context of the one that makes it, from when the
    first is asked for.

    Args:
        start: Gives the iterator.
        count: How many results may wait.
    """

    def __init__(self, start: Callable[[], Iterator[Any]], count: int) -> None:
        self._between = _Between(count, weakref.ref(self))
        work = functools.partial(contextvars.copy_context().run, _work, start, self._between)
        self._thread = OwnThread(work)
        weakref.finalize(self, _close, self._between, self._thread)  # at the end of the interpreter too

    def next(self) -> Any:
        """The next result.

        Raises:
            StopIteration: There is none.
            Exception: What the iterator raised, with its traceback.
        """
        self._thread.start()
        between = self._between
        while not between.results:
            if between.has_ended and not between.results:
                raise StopIteration if between.error is None else between.error
            _wait(between.to_reader)
        result = between.results.popleft()
        between.to_thread.put(None)
        return result

    def close(self) -> None:
        """End the thread, and close the iterator."""
        _close(self._between, self._thread)


class _Between:
    """What the thread and the one who reads both know. Nothing in it has a lock that an interrupt could leave held."""

    def __init__(self, count: int, reader: weakref.ref[Any]) -> None:
        self.count = count
        self.reader = reader
        self.results: deque[Any] = deque()
        self.error: BaseException | None = None
        self.has_ended = False
        self.is_closed = False
        self.to_reader: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.to_thread: queue.SimpleQueue[None] = queue.SimpleQueue()

    def is_over(self) -> bool:
        """Whether nobody will read any more. Python drops an interrupt that comes while an object is taken down, and
        what was to be done then: so it is looked whether there is a reader."""
        return self.is_closed or self.reader() is None


def _close(between: _Between, thread: OwnThread) -> None:
    between.is_closed = True
    between.to_thread.put(None)
    thread.end(_PATIENCE)
    between.results.clear()


def _wait(bell: queue.SimpleQueue[None]) -> None:
    try:
        bell.get(timeout=_SECONDS)
    except queue.Empty:
        return


def _work(start: Callable[[], Iterator[Any]], between: _Between) -> None:
    """What the thread does. It knows nothing of the one who reads, who may be gone."""
    try:
        results = start()
        try:
            for result in results:
                while len(between.results) >= between.count and not between.is_over():
                    _wait(between.to_thread)
                if between.is_over():
                    return
                between.results.append(result)
                between.to_reader.put(None)
        finally:
            if hasattr(results, "close"):
                results.close()
    except BaseException as error:  # whatever it is, who reads shall see it
        between.error = error
    finally:
        between.has_ended = True
        between.to_reader.put(None)
