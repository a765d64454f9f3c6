"""Solvers made of any optax transformation."""

from __future__ import annotations

import math
from typing import Any

import optax

from .solver import Solver, Transformation


class FromOptax(Solver):
    """Moves parameters as an optax transformation says; made by `Solver.from_optax`."""

    opaque = True

    def __init__(self, tx: Any, lr: float | None) -> None:
        super().__init__(0.0 if lr is None else lr)
        if lr is None:
            self._lr = math.nan  # nobody knows it
        if isinstance(tx, optax.GradientTransformation):
            if lr is not None:
                raise TypeError("lr: a transformation has its own; give lr with a function such as optax.adam")
        elif not callable(tx) or lr is None:
            raise TypeError(f"expected an optax GradientTransformation, or a function such as optax.adam with lr, "
                            f"got {tx!r} and lr={lr!r}")
        self._tx = tx
        self._own_rate = lr is None

    def transformation(self, lr: Any) -> Transformation:
        return self._tx if self._own_rate else self._tx(lr)

    def set_learning_rate(self, learning_rate: float) -> None:
        if self._own_rate:
            raise ValueError("the learning rate is the transformation's own; "
                             "make the solver as Solver.from_optax(optax.adam, lr=...) to set it")
        super().set_learning_rate(learning_rate)
