"""The learning rate of a solver."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ..graph.spec import x64_if
from .rates import Rate, as_rate, schedule_of, scheduled


class LearningRate:
    """The methods of a `Solver` that have to do with its learning rate."""

    rate_name = "lr"
    """How the solver's arguments call the learning rate; `lr` is understood everywhere."""
    updates: int

    _lr: Rate
    """A number, or a schedule."""
    _held_rate: tuple[float, Any] | None
    """The rate, and the same as an array, once it has been read."""
    _held_schedule: tuple[Rate, Any]
    """The rate, and the function that it is, if it is a schedule."""
    _needs_x64: bool

    def set_learning_rate(self, learning_rate: Rate) -> None:
        """Set the learning rate, from the next update on. Nothing is compiled anew.

        Args:
            learning_rate: A number; or a schedule: a function of the number of updates before, such as those of optax,
                or an object with `get_learning_rate(iter)`.

        Raises:
            ValueError: It is negative or not finite.
        """
        self._set_rate(learning_rate)

    def _set_rate(self, rate: Rate, name: str = "learning_rate") -> float:
        """Set the learning rate, and return that of the next update."""
        schedule = schedule_of(rate)
        lr = as_rate(rate, name) if schedule is None else scheduled(schedule, self.updates, name)
        self._lr = lr if schedule is None else rate
        self._held_schedule = rate, schedule
        self._held_rate = None
        return lr

    @property
    def has_schedule(self) -> bool:
        """Whether the learning rate follows from the number of updates."""
        return not isinstance(self._lr, float)

    @property
    def _rate(self) -> Any:
        """The learning rate as an array of JAX, which is neither compiled in nor converted at each step. It is made
        when it is read first: that starts JAX's backend."""
        lr, held = self._lr, self._held_rate
        if held is not None and held[0] is lr:
            return held[1]
        lr = self.learning_rate()
        if held is None or held[0] != lr:
            array: Any = np.array(lr, np.float64 if self._needs_x64 else np.float32)
            if jax.process_count() == 1:  # else each process has it from NumPy: JAX's array would be this one's alone
                with x64_if(self._needs_x64), jax.ensure_compile_time_eval():
                    array = jax.device_put(array)
            held = self._held_rate = lr, array
        return held[1]

    def learning_rate(self) -> float:
        """The learning rate of the next update."""
        lr = self._lr
        if isinstance(lr, float):
            return lr
        held, schedule = self._held_schedule
        if held is not lr:  # the solver is a copy
            schedule = schedule_of(lr)
            self._held_schedule = lr, schedule
        return scheduled(schedule, self.updates, self.rate_name)
