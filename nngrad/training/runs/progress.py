"""How far a run is: a bar with the time left on a terminal, and lines where the output is piped."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

NORM = "_gradient_norm"
"""What names of norms end in."""
SHOWN_EVERY = 0.1
"""Seconds from one movement of the bar to the next."""


class Shown:
    """A run as it is shown, from when this is made until `stop`.

    Args:
        console: Where to print; None for the standard error, and nothing where that is no terminal.
        steps: How many there are in all, as far as that is known.
        step: How many are done.
    """

    def __init__(self, console: Console | None, steps: int | None, step: int) -> None:
        self._is_quiet = console is None
        self._console = Console(stderr=True) if console is None else console
        self._steps = steps
        self._next = 0.0
        self._bar: Progress | None = None
        if self._console.is_terminal:
            columns = BarColumn(16), MofNCompleteColumn(), TextColumn("{task.fields[values]}"), TimeRemainingColumn()
            self._bar = Progress(*columns, console=self._console)
            self._task = self._bar.add_task("train", total=steps, completed=step, values="compiling")
            self._bar.start()

    def stop(self) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.stop()

    def at(self, step: int) -> None:
        """Move the bar, if it has not been moved just now."""
        now = time.monotonic()
        if self._bar is not None and (now >= self._next or step == self._steps):
            self._next = now + SHOWN_EVERY
            self._bar.update(self._task, completed=step)

    def values(self, step: int, values: Mapping[str, float]) -> None:
        """Show what was measured after a step; on a terminal without losses and norms, to fit into 80 columns."""
        if self._bar is not None:
            chosen = {name: value for name, value in values.items() if not name.endswith(("_loss", NORM))}
            self._bar.update(self._task, completed=step, values=in_words(chosen or values))
        elif not self._is_quiet:
            of = "" if self._steps is None else f" of {self._steps:,}"
            self._console.print(f"step {step:,}{of}: {in_words(values)}", highlight=False, soft_wrap=True)


def in_words(values: Mapping[str, float]) -> str:
    """Values with their names, in a line."""
    return ", ".join(f"{name.replace('_', ' ')} {three_digits(value)}" for name, value in values.items())


def three_digits(value: float) -> str:
    """A number in three digits."""
    return f"{value:.3g}" if math.isfinite(value) and 1e-3 <= abs(value) < 1e4 else f"{value:.1e}"
