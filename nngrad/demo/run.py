"""The demo from end to end: train with a progress bar, draw, and say where the pictures are."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path

import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import nngrad as nn

from .gan import Gan, Record, digits


def run(steps: int, output: Path, seed: int, device: str | None, console: Console) -> None:
    """Train the GAN and write `digits.png` and `curves.png`.

    Args:
        steps: Steps of the generator.
        output: Folder for the pictures; made where it is missing.
        seed: Seed of all that is random.
        device: 'cpu' or 'cuda'; None takes what JAX takes by itself.
        console: Where to print.
    """
    from .pictures import draw_curves, draw_digits

    output.mkdir(parents=True, exist_ok=True)
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
        records = _train(gan, steps, console)
        generated = gan.samples()
    draw_digits(generated, data[:100], output / "digits.png")
    draw_curves(records, output / "curves.png")
    late = records[-max(len(records) // 10, 1) :]
    console.print(
        f"{steps} steps in {time.perf_counter() - began:.1f} s, compilation included."
        f" At the end: Wasserstein estimate {_mean(late, 'distance'):.2f},"
        f" mean gradient norm {_mean(late, 'slope'):.2f} (the penalty pulls it to 1).",
        highlight=False,
    )
    for name in ("digits.png", "curves.png"):
        console.print(f"  {output / name}", markup=False, highlight=False, soft_wrap=True)


def _train(gan: Gan, steps: int, console: Console) -> list[Record]:
    # Fits into 80 columns.
    columns = BarColumn(16), MofNCompleteColumn(), TextColumn("{task.fields[figures]}"), TimeRemainingColumn()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("train", total=steps, figures="compiling")

        def report(r: Record) -> None:
            figures = f"distance{r.distance:5.2f}, loss{r.loss:6.2f}, gradient norm{r.slope:5.2f}"
            progress.update(task, completed=r.step, figures=figures)

        return gan.train(steps, report)


def _mean(records: list[Record], name: str) -> float:
    values = [getattr(r, name) for r in records]
    return float(sum(values) / len(values))
