"""`nn.EarlyStopping`: ends a run that does not become better."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...graph.arguments import checked_count

if TYPE_CHECKING:
    from .fit import Run


class EarlyStopping:
    """A callback of `nn.fit` that ends the run when a metric has not become better for a number of measurements.

        nn.fit(step, batches, epochs=100, evaluate=evaluate, callbacks=[nn.EarlyStopping("val_loss", patience=5)])

    Checkpoints hold its state, so a resumed run ends where an undisturbed one does.

    Args:
        metric: A name of what the step or `evaluate` gives.
        patience: How many measurements in a row may be no better than the best one before.
        highest: Whether high values are good, and not low ones.
        least: By how much a value must be better than the best one before to count.

    Raises:
        TypeError: `patience` is no int.
        ValueError: `patience` is less than 1.
    """

    def __init__(self, metric: str, patience: int = 1, *, highest: bool = False, least: float = 0.0) -> None:
        checked_count(patience, "patience")
        self._metric, self._patience, self._sign, self._least = metric, patience, -1 if highest else 1, least
        self._best = math.inf
        self._waited = 0

    def __call__(self, run: Run) -> None:
        """Look at what was measured after a step."""
        value = run.metrics.get(self._metric)
        if value is not None:
            better = self._sign * value < self._best - self._least
            self._waited = 0 if better else self._waited + 1
            self._best = self._sign * value if better else self._best
        elif run.step == 1:
            raise ValueError(f"EarlyStopping: the run has no metric {self._metric!r}; it has "
                             f"{', '.join(map(repr, run.metrics)) or 'none'}")
        if self._waited >= self._patience:
            run.stop(f"{self._metric} has not become better {self._waited} times in a row")

    def get_state(self) -> dict[str, Any]:
        """The best value before, and how often none was better, fit for JSON."""
        return {"best": repr(self._best), "waited": self._waited}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from a state that `get_state` gave."""
        self._best, self._waited = float(state["best"]), state["waited"]
