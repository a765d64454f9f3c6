"""The demo: train the recipe `gan` with a progress bar, draw pictures, and say where they are."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np
from rich.console import Console

import nngrad as nn

from ..files.replacing import write_whole
from ..training.runs import TrainingLog, training_log
from ..training.runs.log import as_png
from .recipes.configuration import with_values
from .recipes.pictures import BLUE, GREY, ORANGE, draw_tiled, figure
from .recipes.run import recipe_named

_Gan: Any = recipe_named("gan")
Lines: TypeAlias = Sequence[Mapping[str, float]]
ROOM = 1 << 18
"""An upper bound on the bytes of both pictures."""
MEASURED_EVERY = 10


def draw_digits(steps: int, output: Path, seed: int, device: str | None, console: Console) -> None:
    """Train the GAN for `steps` steps of the generator, and write `digits.png` and `curves.png`, which replace those of
    an earlier run.

    Raises:
        OSError: The pictures cannot be written; the message names the file. This is checked before the training as far
            as possible. An error without a file comes from printing.
        KeyboardInterrupt: Ctrl-C; the message says what was kept.
    """
    _check_writable(output)
    written: list[Path] = []
    try:
        with nullcontext() if device is None else nn.context_scope(nn.get_extension_context(device)):
            _train_and_draw(steps, output, seed, console, written)
    except KeyboardInterrupt:
        kept = " and ".join(map(str, written)) or "nothing, since pictures are drawn after the training"
        raise KeyboardInterrupt(f"saved: {kept}") from None


def _check_writable(folder: Path) -> None:
    """Make the folder, and check that there is room for the final files."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(ROOM))
    except OSError as error:
        why = f"the folder cannot be written to: {error.strerror}; choose another one"
        raise OSError(error.errno, why, str(folder)) from error


def _train_and_draw(steps: int, output: Path, seed: int, console: Console, written: list[Path]) -> None:
    """Train and draw; each picture is added to `written` once it exists."""
    began = time.perf_counter()
    console.print(
        f"A generator learns to draw 8x8 digits: {steps} steps on {nn.get_current_context().jax_device.device_kind}, "
        f"jax {jax.__version__}.\nIts critic's loss holds the gradient of the critic (WGAN-GP), so each step "
        "differentiates a gradient.", highlight=False,
    )
    gan = untrained(steps, seed)
    progress = console if console.is_terminal else False
    course = trained(gan, training_log(steps=steps, progress=progress))
    write_whole(output / "digits.png", as_png(digits_of(gan)))
    written.append(output / "digits.png")
    write_whole(output / "curves.png", as_png(curves_of(course)))
    written.append(output / "curves.png")
    late = course[-max(len(course) // 10, 1) :]
    console.print(
        f"{steps} steps in {time.perf_counter() - began:.1f} s, compilation included."
        f" At the end: Wasserstein estimate {np.mean([line['distance'] for line in late]):.2f},"
        f" mean gradient norm {np.mean([line['gradient_norm'] for line in late]):.2f} (the penalty pulls it to 1).",
        highlight=False,
    )
    for path in written:
        console.print(f"  {path}", markup=False, highlight=False, soft_wrap=True)


def untrained(steps: int, seed: int = 0) -> Any:
    """The untrained GAN, on one device, with settings for this number of steps."""
    return _Gan(with_values(_Gan.defaults, {"steps": steps, "seed": seed, "devices": 1}))


def trained(gan: Any, log: TrainingLog) -> Lines:
    """Train to the end, and return the lines of the log, written after the first step and at regular intervals."""

    def take(number: int) -> None:
        gan.set_rates(number)
        gan.step(number)

    nn.fit(take, range(log.steps or 0), every=MEASURED_EVERY, evaluate=lambda: gan.critique(log.step + 1), log=log)
    gan.copy_parameters()
    return log.lines


def digits_of(gan: Any) -> Any:
    """A figure of 10 by 10 generated digits beside 10 by 10 real ones."""
    drawn = figure(9.5, 5)
    for axes, images, title in zip(drawn.subplots(1, 2), gan.examples(), ("generated", "real"), strict=True):
        draw_tiled(axes, images, title)
    return drawn


def curves_of(course: Lines) -> Any:
    """A figure of the critic's estimate of the distance, its loss, and its mean gradient norm over the steps."""
    of = {name: [line[name] for line in course] for name in course[0]}
    drawn = figure(9.5, 3.8)
    left, right = drawn.subplots(1, 2)
    _draw_curve(left, of["step"], of["distance"], BLUE, "Wasserstein estimate")
    _draw_curve(left, of["step"], of["critic_loss"], ORANGE, "critic's loss")
    left.axhline(0.0, color=GREY, linewidth=0.8)
    left.set_title("distance of generated from real digits")
    left.legend(frameon=False)
    right.axhline(1.0, color=GREY, linewidth=0.8)
    _draw_curve(right, of["step"], of["gradient_norm"], BLUE, "")
    right.set_title("mean gradient norm of the critic")
    right.set_ylim(bottom=0.0)
    return drawn


def _draw_curve(axes: Any, steps: Sequence[float], values: Sequence[float], color: str, label: str) -> None:
    """One curve: the measurements in a faint colour, and their running mean."""
    axes.plot(steps, values, color=color, alpha=0.25, linewidth=0.8)
    axes.plot(steps, running_mean(values), color=color, linewidth=1.6, label=label)
    axes.set_xlabel("steps of the generator")
    axes.set_xscale("symlog", linthresh=1.0)
    axes.spines[["top", "right"]].set_visible(False)


def running_mean(values: Sequence[float]) -> np.ndarray[Any, Any]:
    """The mean over a window around each value that widens with its position, for a logarithmic axis."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    half = np.minimum(at // 8, at[::-1])
    means: np.ndarray[Any, Any] = (sums[at + half + 1] - sums[at - half]) / (2 * half + 1)
    return means
