"""`nngrad demo`: train the networks of `examples/digits.py`, draw pictures, and say where they are."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from importlib.metadata import files
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

import nngrad as nn
from nngrad_command.installation import install_command, missing
from nngrad_command.outcome import complain

from ..files.replacing import write_whole


def run(steps: int, folder: Path, seed: int, device: str | None) -> int:
    """`nngrad demo`; returns the exit code."""
    lacking = missing("demo")
    if lacking:
        names = " and ".join([r.wanted for r in lacking])
        complain(f"nngrad demo needs {names}. This installs what is missing:\n\n    {install_command(lacking)}\n")
        return 1
    if steps < 1:
        complain(f"nngrad demo: --steps must be at least 1, got {steps}")
        return 1
    folder.mkdir(parents=True, exist_ok=True)  # an error comes before the training
    with suppress(OSError):  # without a cache it takes longer
        nn.cache_compilations()
    with nullcontext() if device is None else nn.context_scope(nn.get_extension_context(device)):
        _train_and_draw(example_of(example_file()), steps, folder, seed)
    return 0


def example_of(path: Path) -> Any:
    """The module of the example. It is not imported by name, which may clash with a user's folder."""
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def example_file() -> Path:
    """The file of the example: in a clone, or where the wheel has put it."""
    cloned = Path(__file__).parents[2] / "examples" / "digits.py"
    if cloned.is_file():
        return cloned
    (installed,) = [file for file in files("nngrad") or () if file.match("share/nngrad/examples/digits.py")]
    return Path(str(installed.locate()))


def _train_and_draw(example: Any, steps: int, folder: Path, seed: int) -> None:
    console = Console()
    began = time.perf_counter()
    console.print(
        f"A generator learns to draw 8x8 digits: {steps} steps on "
        f"{nn.get_current_context().jax_device.device_kind}, jax {jax.__version__}.\nIts critic's loss holds the "
        "gradient of the critic (WGAN-GP), so each step differentiates a gradient.", highlight=False,
    )
    gan = example.Gan(steps, seed)
    course = gan.train(nn.training_log(steps=steps, progress=console if console.is_terminal else False))
    for name, draw, of in (("digits", example.digits_of, gan), ("curves", example.curves_of, course)):
        picture = io.BytesIO()
        draw(of).savefig(picture, format="png")
        write_whole(folder / f"{name}.png", picture.getvalue())
    late = course[-max(len(course) // 10, 1) :]
    console.print(
        f"{steps} steps in {time.perf_counter() - began:.1f} s, compilation included."
        f" At the end: Wasserstein estimate {_mean(late, 'distance'):.2f},"
        f" mean gradient norm {_mean(late, 'gradient_norm'):.2f} (the penalty pulls it to 1).",
        highlight=False,
    )
    for name in ("digits", "curves"):
        console.print(f"  {folder / name}.png", markup=False, highlight=False, soft_wrap=True)


def _mean(lines: Sequence[Mapping[str, float]], name: str) -> float:
    return sum([line[name] for line in lines]) / len(lines)
