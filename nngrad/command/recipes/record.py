"""What a run writes and shows while it goes on: metrics, pictures, and how far it is."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console

import nngrad as nn

from ...files.metrics_file import SECONDS, STEP, MetricsFile
from ...files.replacing import write_whole
from .folder import TrainingFolder
from .metrics import TensorBoard
from .pictures import as_png
from .progress import NORM, Shown, in_words
from .recipe import Recipe
from .settings import RecipeSettings


class RunRecord:
    """The record of a run; a context. Only the first process has one.

    Args:
        recipe: What is trained.
        settings: How.
        folder: Where files are written.
        console: Where to print.
        step: How many steps are done.

    Raises:
        OSError: A file cannot be read or written; the message names it.
    """

    def __init__(
        self, recipe: Recipe, settings: RecipeSettings, folder: TrainingFolder, console: Console, step: int
    ) -> None:
        self._recipe, self._folder = recipe, folder
        self._metrics = MetricsFile(folder.metrics, step)
        self._shown = Shown(console, settings.steps, step)
        self._board = TensorBoard(folder.tensorboard, step) if settings.log.tensorboard else None
        self._before = float(self._metrics.last.get(SECONDS, 0))
        self._began = time.monotonic()

    def __enter__(self) -> RunRecord:
        self._shown.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.__exit__(kind, error, trace)
        if self._board is not None:
            self._board.close()

    def moved(self, step: int) -> None:
        """A step was done."""
        self._shown.at(step)

    def measure(self, step: int, rate: float) -> None:
        """Measure what there is after a step, and write it down.

        Args:
            step: How many are done.
            rate: The learning rate of the last one.
        """
        recipe = self._recipe
        recipe.copy_parameters()
        found = {f"{name}_loss": float(loss) for name, loss in recipe.losses.items()}
        found |= {f"{name}{NORM}": float(norm) for name, norm in recipe.gradient_norms.items()}
        found |= recipe.measured()
        seconds = round(self._before + time.monotonic() - self._began, 3)
        values = {STEP: step, SECONDS: seconds, "rate": rate, **found}
        self._metrics.append(values)
        if self._board is not None:
            self._board.append(values)
        self._shown.values(step, found)

    def draw(self, step: int) -> None:
        """Draw what there is after a step."""
        self._recipe.copy_parameters()
        drawn = self._recipe.drawn()
        write_whole(self._folder.sample(step), as_png(drawn))
        if self._board is not None:
            self._board.draw(drawn, step)

    def finish(self) -> None:
        """Write the parameters to a file, once the last step is done."""
        nn.save_parameters(self._folder.parameters, self._recipe.copy_parameters())

    def __str__(self) -> str:
        """What was measured at last."""
        named = {
            n: float(v) for n, v in self._metrics.last.items()
            if n not in (STEP, SECONDS, "rate") and not n.endswith(NORM)
        }  # fmt: skip
        return in_words(named)
