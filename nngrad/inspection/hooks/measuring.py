"""MeasuringHook: the base of hooks that read a meter before and after each function."""

from __future__ import annotations

import threading
from typing import Any

from ...graph import Function
from .base import Arrays, FunctionHook


class _Readings(threading.local):
    """The readings before the functions that run now, the innermost last. A hook on a function watches it in all
    threads, so each thread has its own."""

    def __init__(self) -> None:
        self.before: list[float] = []


class MeasuringHook(FunctionHook):
    """Reads a meter before and after each function, forward and backward. Subclasses say what the meter is."""

    def __init__(self) -> None:
        self._readings = _Readings()

    def read(self) -> float:
        """Returns what the meter says now."""
        raise NotImplementedError

    def record(self, function: Function, way: str, before: float, after: float) -> None:
        """Keep the readings before and after a function; `way` is 'forward' or 'backward'."""
        raise NotImplementedError

    def _ran(self, function: Function, way: str) -> None:
        after = self.read()
        self.record(function, way, self._readings.before.pop(), after)

    def forward_preprocess(self, function: Function, in_data: Arrays) -> None:
        """Read the meter."""
        self._readings.before.append(self.read())

    def forward_postprocess(self, function: Function, in_data: Arrays) -> None:
        """Read it again."""
        self._ran(function, "forward")

    def backward_preprocess(self, function: Function, in_data: Arrays, out_grad: tuple[Any | None, ...]) -> None:
        """Read the meter."""
        self._readings.before.append(self.read())

    def backward_postprocess(self, function: Function, in_data: Arrays, out_grad: tuple[Any | None, ...]) -> None:
        """Read it again."""
        self._ran(function, "backward")
