"""The learning rate of a solver."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ..graph.spec import x64_if
from .rates import as_rate


class LearningRate:
    """The methods of a `Solver` that have to do with its learning rate."""

    _lr: float
    _held_rate: Any
    """The rate as an array, once it has been read."""
    _needs_x64: bool

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the learning rate.

        Raises:
            ValueError: It is negative or not finite.
        """
        lr = as_rate(learning_rate, "learning_rate")
        if lr != self._lr:
            self._set_rate(lr)

    def _set_rate(self, lr: float) -> None:
        self._lr = lr
        self._held_rate = None

    @property
    def _rate(self) -> Any:
        """The learning rate as an array of JAX, which is neither compiled in nor converted at each step. It is made
        when it is read first: that starts JAX's backend."""
        held = self._held_rate
        if held is None:
            held = np.array(self._lr, np.float64 if self._needs_x64 else np.float32)
            if jax.process_count() == 1:  # else each process has it from NumPy: JAX's array would be this one's alone
                with x64_if(self._needs_x64), jax.ensure_compile_time_eval():
                    held = jax.device_put(held)
            self._held_rate = held
        return held

    def learning_rate(self) -> float:
        """The learning rate."""
        return self._lr
