"""The demo from end to end: train with a progress bar, draw, and say where the pictures are."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack, nullcontext
from pathlib import Path

import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import nngrad as nn
from nngrad_command.following.beside import FollowedBeside

from ...files.metrics_file import SECONDS, STEP, MetricsFile
from ...files.replacing import write_whole
from .gan import Gan, Record, digits
from .pictures import as_png, draw_curves, draw_digits, picture_of

ROOM = 1 << 18
"""Bytes that both pictures fit in."""
LIVE_PICTURES = 500
"""Steps from one picture to the next for a page that follows the training."""


def run(steps: int, output: Path, seed: int, device: str | None, console: Console, live: bool = False) -> None:
    """Train the GAN and write `digits.png` and `curves.png`, which replace those of an earlier run.

    Args:
        steps: Steps of the generator.
        output: Folder for the pictures; made where it is missing.
        seed: Seed of all that is random.
        device: 'cpu' or 'cuda'; None takes what JAX takes by itself.
        console: Where to print.
        live: Whether a process beside it serves a page that follows the training; the folder gets what it reads.

    Raises:
        OSError: The pictures cannot be written; the message names the file. What can be known of that is found out
            before the training. An error that names no file is that of printing.
        KeyboardInterrupt: It was interrupted; the message says what was kept.
    """
    _check_writable(output)
    written: list[Path] = []
    try:
        with ExitStack() as entered:
            shown = None
            if live:
                shown = Live(output)
                page = entered.enter_context(FollowedBeside(output))
                console.print(page.said, markup=False, highlight=False, soft_wrap=True)
            _train_and_draw(steps, output, seed, device, console, written, shown)
    except KeyboardInterrupt:
        kept = " and ".join(map(str, written)) or "nothing, since pictures are drawn after the training"
        raise KeyboardInterrupt(f"kept: {kept}") from None


class Live:
    """What a page reads that follows the training: metrics and pictures, of which an earlier run's are removed.

    Args:
        folder: Where they are written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._samples = folder / "samples"
        for old in (folder / "metrics.csv", *self._samples.glob("step-????????.png")):
            old.unlink(missing_ok=True)
        self._metrics = MetricsFile(folder / "metrics.csv", 0)
        self._began = time.perf_counter()

    def write(self, record: Record, gan: Gan, steps: int) -> None:
        """Write where training stands, and now and then a picture."""
        seconds = round(time.perf_counter() - self._began, 3)
        self._metrics.append({
            STEP: record.step, SECONDS: seconds, "distance": record.distance, "critic_loss": record.loss,
            "gradient_norm": record.slope,
        })  # fmt: skip
        if record.step % LIVE_PICTURES == 0 or record.step == steps:
            self._samples.mkdir(exist_ok=True)
            write_whole(self._samples / f"step-{record.step:08d}.png", as_png(picture_of(gan.same_samples())))


def _check_writable(folder: Path) -> None:
    """Make the folder, and try whether there is room for what is written in the end."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(ROOM))
    except OSError as error:
        why = f"the folder cannot be written to: {error.strerror}; choose another one"
        raise OSError(error.errno, why, str(folder)) from error


def _train_and_draw(
    steps: int, output: Path, seed: int, device: str | None, console: Console, written: list[Path],
    shown: Live | None,
) -> None:  # fmt: skip
    """Adds to `written` each picture that is there."""
    began = time.perf_counter()
    scope = nullcontext() if device is None else nn.context_scope(nn.get_extension_context(device))
    with scope:
        where = nn.get_current_context().jax_device
        console.print(
            f"A generator learns to draw 8x8 digits: {steps} steps on {where.device_kind}, jax {jax.__version__}.\n"
            "Its critic's loss holds the gradient of the critic (WGAN-GP), so each step differentiates a gradient.",
            highlight=False,
        )
        data = digits()
        gan = Gan(data, seed)
        records = _train(gan, steps, console, shown)
        generated = gan.samples()
    draw_digits(generated, data[:100], output / "digits.png")
    written.append(output / "digits.png")
    draw_curves(records, output / "curves.png")
    written.append(output / "curves.png")
    late = records[-max(len(records) // 10, 1) :]
    console.print(
        f"{steps} steps in {time.perf_counter() - began:.1f} s, compilation included."
        f" At the end: Wasserstein estimate {_mean(late, 'distance'):.2f},"
        f" mean gradient norm {_mean(late, 'slope'):.2f} (the penalty pulls it to 1).",
        highlight=False,
    )
    for path in written:
        console.print(f"  {path}", markup=False, highlight=False, soft_wrap=True)


def _train(gan: Gan, steps: int, console: Console, shown: Live | None) -> list[Record]:
    # Fits into 80 columns.
    columns = BarColumn(16), MofNCompleteColumn(), TextColumn("{task.fields[figures]}"), TimeRemainingColumn()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("train", total=steps, figures="compiling")

        def report(r: Record) -> None:
            figures = f"distance{r.distance:5.2f}, loss{r.loss:6.2f}, gradient norm{r.slope:5.2f}"
            progress.update(task, completed=r.step, figures=figures)
            if shown is not None:
                shown.write(r, gan, steps)

        return gan.train(steps, report)


def _mean(records: list[Record], name: str) -> float:
    values = [getattr(r, name) for r in records]
    return float(sum(values) / len(values))
