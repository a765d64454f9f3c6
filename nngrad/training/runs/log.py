"""`nn.training_log`: metrics and progress of a run, in files and on the terminal."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

from ...extend import NdArray, Variable, checked_count
from ...files.replacing import read_whole, write_whole
from ...parallel import hosts


def in_words(values: Mapping[str, float]) -> str:
    """Names and values in one line, with three significant digits."""
    return ", ".join(
        f"{name.replace('_', ' ')} {value:{'.3g' if 1e-3 <= abs(value) < 1e4 else '.1e'}}"
        for name, value in values.items()
    )


METRICS, TENSORBOARD = "metrics.jsonl", "tensorboard"
STEP, SECONDS = "step", "seconds"
_TASK = TaskID(0)
"""The only task of the progress bar."""


class TrainingLog:
    """The log of a run, made by `training_log`: a context manager to be called with each step's values."""

    def __init__(
        self, folder: Path | None, step: int, steps: int | None, tensorboard: bool, progress: bool | Console
    ) -> None:
        self.folder, self.step, self.steps = folder, step, steps
        self.lines: list[dict[str, float]] = []
        """The measured values, a dict for each line; in a resumed run also the earlier ones."""
        self._tensorboard, self._progress = tensorboard, progress
        self._path: Path | None = None  # of the file of metrics, in the process that writes it
        self._board: Any = None
        self._closed = ExitStack()

    def __enter__(self) -> TrainingLog:
        with ExitStack() as opened:
            if self.folder is not None and hosts.is_first():
                self._open(self.folder, opened)
            console = self._progress if isinstance(self._progress, Console) else Console(stderr=True)
            shows = self._progress is not False and console.is_terminal and hosts.is_first()
            whole = Column(no_wrap=True)  # where values do not fit into a line, they take two
            self._bar = opened.enter_context(Progress(
                BarColumn(16), MofNCompleteColumn(table_column=whole),
                TextColumn("{task.fields[values]}", table_column=Column()), TimeRemainingColumn(table_column=whole),
                console=console, disable=not shows,
            ))  # fmt: skip
            self._bar.add_task("train", total=self.steps, completed=self.step, values="compiling")
            self._closed = opened.pop_all()
        self._before = self.lines[-1].get(SECONDS, 0.0) if self.lines else 0.0
        self._began = time.monotonic()
        return self

    def _open(self, folder: Path, opened: ExitStack) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if self.step == 0 and (folder / METRICS).exists():
            _put_aside(folder)
        self._path = folder / METRICS
        self.lines = _lines_up_to(self._path, self.step)
        if self._tensorboard:
            later = self.step + 1 if self.step else None  # TensorBoard hides older data of these steps
            self._board = _tensorboard_writer()(str(folder / TENSORBOARD), purge_step=later)
            opened.callback(self._board.close)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.close()

    def __call__(self, step: int, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Log the values of a step.

        Args:
            step: The number of completed steps, including this one.
            values: Numbers, and arrays of one element, by name.
            **named: Further values.

        Raises:
            TypeError: A value is not a number; the message names it.
            ValueError: The step does not come after the previous one.
            OSError: A file cannot be written.
        """
        if step <= self.step:
            raise ValueError(f"step: must be the number of completed steps, above {self.step}, got {step}; for a "
                             "resumed run pass training_log the step at which it begins")
        self.write(step, {**(values or {}), **named})

    def moved(self, step: int) -> None:
        """Advance to a step that has no line."""
        self.step = step
        self._bar.update(_TASK, completed=step)

    def write(self, step: int, values: Mapping[str, Any]) -> dict[str, float]:
        """Read the values of a step, and write them.

        Returns:
            The numbers by name.
        """
        numbers = {name: as_number(value, name) for name, value in values.items()}
        seconds = round(self._before + time.monotonic() - self._began, 3)
        line = {STEP: step, SECONDS: seconds, **numbers}
        self.lines.append(dict(line))
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(_line(line))
        if self._board is not None:
            for name in (SECONDS, *numbers):
                self._board.add_scalar(name, line[name], step)
            self._board.flush()
        self.moved(step)
        self._bar.update(_TASK, values=in_words(numbers))
        return numbers


def training_log(
    folder: str | Path | None = None, *, step: int = 0, steps: int | None = None, tensorboard: bool = False,
    progress: bool | Console = True,
) -> TrainingLog:  # fmt: skip
    """Open the log of a training loop: `metrics.jsonl` in a folder, a progress bar, and optionally TensorBoard's files.

        with nn.training_log("runs/one", steps=1000) as log:
            for step in range(1, 1001):
                log(step, loss=train(*batch(step)))

    TensorBoard shows the run in a browser, while it runs and afterwards. Each line of the file is a JSON object, and is
    there as soon as it is written. With several processes the first one writes. Files of an earlier run are moved to a
    subfolder `earlier-1`, unless this run resumes it.

    Args:
        folder: The folder for files; None to write none.
        step: The number of steps already completed; lines of later steps, left by an interrupted run, are removed.
        steps: The total number of steps, if known.
        tensorboard: Whether to write TensorBoard's files to `tensorboard/`. Needs tensorboardX, or PyTorch's writer.
        progress: Whether to show a bar with the remaining time on a terminal; or the rich Console that shows it.

    Raises:
        TypeError: An argument that should be a number is not.
        ValueError: A number is too small, or TensorBoard's files have no folder.
    """
    checked_count(step, "step", 0)
    if steps is not None:
        checked_count(steps, "steps")
    if tensorboard and folder is None:
        raise ValueError("tensorboard: needs a folder; pass one to training_log")
    return TrainingLog(None if folder is None else Path(folder), step, steps, tensorboard, progress)


def value_of(value: Any) -> Any:
    """The array of a Variable or an NdArray; anything else as it is."""
    return value.d if isinstance(value, Variable) else value.data if isinstance(value, NdArray) else value


def as_number(value: Any, name: str) -> float:
    """A number, or the only element of an array, as a float."""
    array = np.asarray(value_of(value))
    if array.size != 1 or array.dtype.kind == "O" or (array.dtype.kind in "USV" and array.dtype.name != "bfloat16"):
        what = f"an array of shape {array.shape}" if array.ndim else repr(value)
        raise TypeError(f"{name}: expected a number or an array of one element, got {what}")
    return float(array.reshape(()))


def _tensorboard_writer() -> Any:
    """The class that writes TensorBoard's files.

    Raises:
        ImportError: Neither tensorboardX nor PyTorch's writer is installed.
    """
    for module in ("tensorboardX", "torch.utils.tensorboard"):
        with suppress(ImportError):
            return import_module(module).SummaryWriter
    raise ImportError("tensorboard: needs tensorboardX, which is not installed: pip install 'nngrad[train]'")


def _put_aside(folder: Path) -> None:
    """Move the files of an earlier run to a subfolder."""
    number = 1
    while (aside := folder / f"earlier-{number}").exists():
        number += 1
    aside.mkdir()
    for name in (METRICS, TENSORBOARD):
        if (folder / name).exists():
            shutil.move(folder / name, aside / name)


def _lines_up_to(path: Path, step: int) -> list[dict[str, float]]:
    """The lines of a file of metrics up to a step. Later ones, and the partial one of a killed process, are removed
    from the file, so that a resumed run neither misses nor repeats a step."""
    content = read_whole(path) if path.exists() else b""
    lines = []
    for text in content[: content.rfind(b"\n") + 1].splitlines():
        with suppress(ValueError):  # a damaged line
            line = json.loads(text)
            if isinstance(line, dict) and line.get(STEP, math.inf) <= step:
                lines.append(line)
    if (new := b"".join(map(_line, lines))) != content:
        write_whole(path, new)
    return lines


def _line(values: Mapping[str, float]) -> bytes:
    return f"{json.dumps(values)}\n".encode()
