"""What hooks that measure note before a function runs."""

from __future__ import annotations

import threading


class Before(threading.local):
    """What was noted before each of the functions that run now, the innermost last. Each thread has its own: a hook on
    a function watches it in all threads."""

    def __init__(self) -> None:
        self._noted: list[float] = []

    def note(self, value: float) -> None:
        """Before a function runs."""
        self._noted.append(value)

    def taken(self) -> float:
        """What was noted before the function that has run."""
        return self._noted.pop()
