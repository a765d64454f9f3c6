"""GradientNormHook: the norms of gradients, function by function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...graph import Function
from .base import Arrays, FunctionHook, label, table_of


class GradientNormHook(FunctionHook):
    """Keeps the Euclidean norms of the gradients that arrive at the outputs of functions: where gradients vanish,
    explode or stop being numbers can be read off it."""

    def __init__(self) -> None:
        self.history: list[tuple[str, float]] = []
        """Name of each function whose backward ran, and the norm of the gradients of all its outputs together."""

    def backward_preprocess(self, function: Function, in_data: Arrays, out_grad: tuple[Any | None, ...]) -> None:
        """Take the norm."""
        squares = [float(np.sum(np.square(np.asarray(g, np.float64)))) for g in out_grad if g is not None]
        self.history.append((label(function), math.sqrt(sum(squares))))

    @property
    def norms(self) -> dict[str, list[float]]:
        """The norms by name of the function, in the order in which the backward passed."""
        found: dict[str, list[float]] = {}
        for name, norm in self.history:
            found.setdefault(name, []).append(norm)
        return found

    def summary(self) -> str:
        """A table, in the order in which the backward first passed."""
        rows = []
        for name, norms in self.norms.items():
            finite = [n for n in norms if math.isfinite(n)]
            shown = [f"{v:.4g}" for v in (min(finite), sum(finite) / len(finite), max(finite))] if finite else ["-"] * 3
            rows.append((name, str(len(norms)), *shown, str(len(norms) - len(finite))))
        return table_of(("function", "calls", "least", "mean", "largest", "not finite"), rows)
