"""Detection of losses that are not finite, without waiting for the running step."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

_LATE = 8
"""The number of steps after which a loss is checked: by then it is ready, so nothing waits for it. The number is fixed,
so that all processes of a run stop at the same step."""


class RecentLosses:
    """The losses of recent steps, each checked some steps later."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, Any]] = deque()
        """Steps and losses that were not checked yet."""

    def add(self, step: int, loss: Any) -> None:
        """Record the loss of a step, and check that of an earlier one.

        Raises:
            FloatingPointError: The earlier loss is not finite.
        """
        self.waiting.append((step, loss))
        self.look(_LATE)

    def look(self, late: int = 0) -> None:
        """Check recorded losses, waiting for them, until `late` are left.

        Raises:
            FloatingPointError: A loss is not finite.
        """
        while len(self.waiting) > late:
            step, loss = self.waiting.popleft()
            value = np.asarray(loss)
            if not np.isfinite(value).all():
                self.waiting.clear()
                raise FloatingPointError(f"the loss of step {step} is {value}")
