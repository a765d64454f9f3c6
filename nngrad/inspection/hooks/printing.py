"""Hooks on arrays: `PrintHook` prints them, `GradientNormHook` records norms of gradients."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, TextIO

import numpy as np

from ...extend import Function
from .base import Arrays, FunctionHook, by_key, label, table_of


class PrintHook(FunctionHook):
    """Prints a line for each function before it runs, with the shape, dtype and range of its inputs (forward) or of the
    gradients of its outputs (backward).

    Args:
        file: Where to print; by default the current `sys.stdout`.
        wanted: A predicate that selects functions to print; all by default.
    """

    def __init__(self, file: TextIO | None = None, wanted: Callable[[Function], bool] = lambda f: True) -> None:
        self.file = file
        self.wanted = wanted

    def forward_preprocess(self, function: Function, in_data: Arrays) -> None:
        """Print the inputs."""
        if self.wanted(function):
            names = function.op.names_of(len(in_data))
            given = [f"{name}: {array_summary(array)}" for name, array in zip(names, in_data, strict=True)]
            self._print("forward ", function, given)

    def backward_preprocess(self, function: Function, in_data: Arrays, out_grad: tuple[Any | None, ...]) -> None:
        """Print the gradients of the outputs."""
        if self.wanted(function):
            several = len(out_grad) > 1
            names = [f"gradient {i}" if several else "gradient" for i in range(len(out_grad))]
            given = [f"{name}: {array_summary(array)}" for name, array in zip(names, out_grad, strict=True)]
            self._print("backward", function, given)

    def _print(self, way: str, function: Function, given: list[str]) -> None:
        print(way, label(function), "; ".join(given), file=self.file or sys.stdout)


def array_summary(array: Any | None) -> str:
    """Shape, dtype and range of an array."""
    if array is None:
        return "none"
    values = np.asarray(array)
    what = f"{values.dtype.name}{list(values.shape)}"
    if not values.size:
        return what
    if values.size == 1:
        return f"{what} {values.reshape(())[()]:.4g}"
    low, high = values.min(), values.max()
    text = f"{what} in [{low:.4g}, {high:.4g}]"
    if values.dtype.kind not in "biu":
        wrong = int(values.size - np.isfinite(values).sum())
        text += f", {wrong} not finite" if wrong else ""
    return text


class GradientNormHook(FunctionHook):
    """Records the L2 norms of the gradients of function outputs, to show where gradients vanish, explode or become
    NaN."""

    def __init__(self) -> None:
        self.history: list[tuple[str, float]] = []
        """The name of each function whose backward ran, and the joint norm of the gradients of its outputs."""

    def backward_preprocess(self, function: Function, in_data: Arrays, out_grad: tuple[Any | None, ...]) -> None:
        """Record the norm."""
        squares = [float(np.sum(np.square(np.asarray(g, np.float64)))) for g in out_grad if g is not None]
        self.history.append((label(function), math.sqrt(sum(squares))))

    @property
    def norms(self) -> dict[str, list[float]]:
        """The norms by function name, in the order of the backward pass."""
        return by_key(self.history)

    def summary(self) -> str:
        """A table, in the order of the backward pass."""
        rows = []
        for name, norms in self.norms.items():
            finite = [n for n in norms if math.isfinite(n)]
            shown = [f"{v:.4g}" for v in (min(finite), sum(finite) / len(finite), max(finite))] if finite else ["-"] * 3
            rows.append((name, str(len(norms)), *shown, str(len(norms) - len(finite))))
        return table_of(("function", "calls", "least", "mean", "largest", "not finite"), rows)
