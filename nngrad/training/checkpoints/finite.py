"""Detection of losses and parameters that are not finite, without waiting for the running step."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...distributed.devices.grid import mesh_of
from ...graph.process import interrupt_safe

_LATE = 8
"""The number of steps after which a loss is checked: by then it is ready, so nothing waits for it. The number is fixed,
so that all processes of a run stop at the same step."""


class RecentLosses:
    """The losses of recent steps, each checked some steps later."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Any]] = deque()

    def add(self, step: int, loss: Any) -> None:
        """Record the loss of a step, and check that of an earlier one.

        Raises:
            FloatingPointError: The earlier loss is not finite.
        """
        self._waiting.append((step, loss))
        while len(self._waiting) > _LATE:
            self._look()

    def look_at_all(self) -> None:
        """Check all recorded losses, waiting for them.

        Raises:
            FloatingPointError: A loss is not finite.
        """
        while self._waiting:
            self._look()

    def clear(self) -> None:
        """Forget all recorded losses."""
        self._waiting.clear()

    def _look(self) -> None:
        step, loss = self._waiting.popleft()
        value = np.asarray(loss)
        if not np.isfinite(value).all():
            self.clear()
            raise FloatingPointError(f"the loss of step {step} is {value}")


def names_not_finite(arrays: Mapping[str, Any]) -> list[str]:
    """The names of the arrays that contain an infinity or NaN."""
    on_host = {name: a for name, a in arrays.items() if _is_on_host(a)}
    elsewhere = {name: a for name, a in arrays.items() if name not in on_host}
    found = [name for name, a in on_host.items() if not np.isfinite(np.asarray(a)).all()]
    if elsewhere:
        mesh = mesh_of(list(elsewhere.values()))
        with nullcontext() if mesh is None else mesh.turn():
            flags = np.asarray(_finite(list(elsewhere.values())))
        found += [name for name, flag in zip(elsewhere, flags, strict=True) if not flag]
    return found


def _is_on_host(array: Any) -> bool:
    """Whether NumPy can read it without a copy."""
    return not isinstance(array, jax.Array) or (
        len(array.sharding.device_set) == 1 and all([device.platform == "cpu" for device in array.devices()])
    )


@interrupt_safe
@jax.jit
def _finite(arrays: list[Any]) -> Any:
    return jnp.stack([jnp.isfinite(a).all() for a in arrays])
