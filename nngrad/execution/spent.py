"""How long compilations took, and how many there were in each tier."""

from __future__ import annotations

import threading
from typing import NamedTuple


class Spent(NamedTuple):
    """Seconds and counts since the start of the process, or since they were forgotten."""

    trace: float = 0.0
    """Seconds in which JAX traced programs."""
    lower: float = 0.0
    """Seconds in which it lowered them."""
    compile: float = 0.0
    """Seconds in which XLA compiled them."""
    cheaply: int = 0
    """How many executables were compiled cheaply at first."""
    best: int = 0
    """How often the best one has taken the place of a cheap one."""

    @property
    def waited(self) -> float:
        """Seconds in which somebody waited."""
        return self.trace + self.lower + self.compile


class Account:
    """What has been spent. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total = Spent()

    def add(self, **spent: float) -> None:
        """Add seconds and counts, by the names that `Spent` has for them."""
        with self._lock:
            self._total = self._total._replace(**{name: getattr(self._total, name) + n for name, n in spent.items()})

    def total(self) -> Spent:
        """All that has been spent."""
        return self._total

    def forget(self) -> None:
        """Begin at zero again."""
        with self._lock:
            self._total = Spent()


spent = Account()
"""What this process has spent."""
