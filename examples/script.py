"""What the example scripts share: the command line, the training loop with its progress bar, and the verdict."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import nngrad as nn
import nngrad.functions as F
import nngrad.parametric_functions as PF
import nngrad.solvers as S
from nngrad_command.installation import install_command, missing

BLUE, ORANGE, GREY = "#2a6fbb", "#d9722e", "#9aa0a6"


class Result(NamedTuple):
    """What an example found."""

    losses: list[float]
    """The loss, from the first step to the last, every so often."""
    error: float
    """The distance from the known solution; what it measures is said by the example."""


def main(
    solve: Callable[..., Result],
    description: str,
    steps: int,
    bound: float,
    arguments: Sequence[str] | None = None,
    options: dict[str, tuple[int | str, str]] | None = None,
) -> int:
    """Run an example from the command line.

    Args:
        solve: The example: takes a number of steps and a folder for its pictures.
        description: Says what it does; the first line is shown by `--help`.
        steps: Steps of training that it takes by default.
        bound: The largest error with which it has done what it should.
        arguments: Those of the command line; by default those of the process.
        options: What else `solve` takes: by its name the default and a description.

    Returns:
        The exit code: 0, or 1 if the error is above the bound, or if what draws the picture is not installed.
    """
    parser = argparse.ArgumentParser(
        description=description.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=steps, help="steps of training")
    folder = Path("nngrad-examples")
    parser.add_argument("--out", type=Path, default=folder, metavar="DIR", help="folder for the picture")
    for name, (default, text) in (options or {}).items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=text)
    given = parser.parse_args(arguments)
    if given.steps < 1:
        parser.error("--steps must be at least 1")
    lacking = missing("demo")
    if lacking:
        print(f"This installs what the examples lack:\n\n    {install_command(lacking)}\n", file=sys.stderr)
        return 1
    given.out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    error = solve(given.steps, given.out, **{name: getattr(given, name) for name in options or {}}).error
    good = error <= bound
    verdict = f"{'within' if good else 'ABOVE'} the bound {bound:.0e}"
    if not good and given.steps < steps:
        verdict += f", which is meant for {steps:,} steps"
    print(f"{time.perf_counter() - began:.1f} s; error {error:.2e}, {verdict}")
    return 0 if good else 1


def tanh_mlp(x: nn.Variable, width: int = 64, hidden: int = 3) -> nn.Variable:
    """A network of `hidden` tanh layers; `x` has shape (batch, inputs), the result (batch, 1)."""
    h = x
    for i in range(hidden):
        h = F.tanh(PF.affine(h, width, name=f"hidden{i + 1}"))
    return PF.affine(h, 1, name="out")


def train(step: Callable[[], Any], solver: S.Solver, rate: float, steps: int, every: int = 20) -> list[float]:
    """Call `step` so many times while the learning rate falls from `rate` to nothing along a cosine.

    Returns:
        The losses of the first steps, and of each `every`-th after them.
    """
    losses = []
    columns = BarColumn(20), MofNCompleteColumn(), TextColumn("{task.fields[loss]}"), TimeRemainingColumn()
    with Progress(*columns) as progress:
        task = progress.add_task("train", total=steps, loss="compiling")
        for i in range(steps):
            solver.set_learning_rate(rate * 0.5 * (1 + math.cos(math.pi * i / steps)))
            loss = step()
            if i < 2 or (i + 1) % every == 0 or i + 1 == steps:
                losses.append(float(loss))
                progress.update(task, completed=i + 1, loss=f"loss {losses[-1]:.2e}")
    return losses


def figure(width: float, height: float) -> Any:
    """An empty picture of matplotlib's, of a size in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", dpi=90)


def save(figure: Any, path: Path) -> None:
    """Write a picture as a PNG file, and say where it is."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure).print_png(path)
    print(path)
