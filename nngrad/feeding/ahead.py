"""Work of a thread of its own, a bounded number of results ahead."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

_SECONDS = 0.1
"""How often the thread looks whether it is to end, while there is no room."""
_PATIENCE = 5.0
"""How long its end is waited for, in seconds: code of others may not return."""


class Ahead:
    """Results of an iterator, computed in a thread of its own in the context of the one that makes it.

    Args:
        start: Gives the iterator.
        count: How many results may wait.
    """

    def __init__(self, start: Callable[[], Iterator[Any]], count: int) -> None:
        self._room: queue.Queue[tuple[str, Any]] = queue.Queue(count)
        self._is_over = threading.Event()
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(_work, start, self._room, self._is_over), name="nngrad feed", daemon=True
        )
        self._thread.start()

    def next(self) -> Any:
        """The next result.

        Raises:
            StopIteration: There is none.
            Exception: What the iterator raised, with its traceback.
        """
        kind, value = self._room.get()
        if kind == "result":
            return value
        self._room.put((kind, value))  # whoever asks again gets the same
        if kind == "end":
            raise StopIteration
        raise value

    def close(self) -> None:
        """End the thread, and close the iterator."""
        self._is_over.set()
        while not self._room.empty():
            try:
                self._room.get_nowait()
            except queue.Empty:
                break
        if self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE)


def _work(start: Callable[[], Iterator[Any]], room: queue.Queue[tuple[str, Any]], is_over: threading.Event) -> None:
    """What the thread does. It knows nothing of the one who reads, who may be gone."""

    def give(kind: str, value: Any) -> bool:
        while not is_over.is_set():
            try:
                room.put((kind, value), timeout=_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    try:
        results = start()
        try:
            for result in results:
                if not give("result", result):
                    return
        finally:
            if hasattr(results, "close"):
                results.close()
    except BaseException as error:  # whatever it is, who reads shall see it
        give("error", error)
    else:
        give("end", None)
