"""`nngrad demo`: train the networks of `examples/digits.py`, draw pictures, and say where they are."""

from __future__ import annotations

import argparse
import io
import tempfile
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
from nngrad_command.arguments import natural, positive
from nngrad_command.installation import missing
from nngrad_command.outcome import has_devices, reported

from ..files.replacing import write_whole
from .console import complain_of_import, console_of_output, lacks

DESCRIPTION = (
    "Train a WGAN-GP on scikit-learn's 8x8 digits and write pictures of the digits that it draws and of the training "
    "curves. Takes about a minute on two CPU cores; needs matplotlib and scikit-learn."
)
ROOM = 1 << 18
"""An upper bound on the bytes of both pictures."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `nngrad demo`."""
    parser.add_argument("--steps", type=positive, default=10000, metavar="N",
                        help="steps of the generator (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("nngrad-demo"), metavar="DIR",
                        help="folder for the pictures (default: %(default)s)")
    parser.add_argument("--seed", type=natural, default=0, metavar="S",
                        help="seed of all that is random (default: %(default)s)")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="where to run (default: a GPU where JAX sees one)")


@reported("demo", ValueError)
def run(given: argparse.Namespace) -> int:
    """`nngrad demo`; returns the exit code."""
    if lacks("demo", missing("demo")):
        return 1
    try:
        example = example_of(example_file())
    except Exception as error:
        complain_of_import("demo", error)
        return 1
    if not has_devices("demo", jax.devices):
        return 1
    with suppress(OSError):  # without a cache it takes longer
        nn.cache_compilations()
    _check_writable(given.output)
    written: list[Path] = []
    try:
        with nullcontext() if given.device is None else nn.context_scope(nn.get_extension_context(given.device)):
            _train_and_draw(example, given, console_of_output(), written)
    except KeyboardInterrupt:
        saved = " and ".join(map(str, written)) or "nothing, since pictures are drawn after the training"
        raise KeyboardInterrupt(f"saved: {saved}") from None
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


def _check_writable(folder: Path) -> None:
    """Make the folder, and check before the training that there is room for the pictures."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(ROOM))
    except OSError as error:
        why = f"the folder cannot be written to: {error.strerror}; choose another one"
        raise OSError(error.errno, why, str(folder)) from error


def _train_and_draw(example: Any, given: argparse.Namespace, console: Console, written: list[Path]) -> None:
    """Train and draw; each picture is added to `written` once it exists."""
    began = time.perf_counter()
    console.print(
        f"A generator learns to draw 8x8 digits: {given.steps} steps on "
        f"{nn.get_current_context().jax_device.device_kind}, jax {jax.__version__}.\nIts critic's loss holds the "
        "gradient of the critic (WGAN-GP), so each step differentiates a gradient.", highlight=False,
    )
    gan = example.Gan(given.steps, given.seed)
    course = gan.train(nn.training_log(steps=given.steps, progress=console if console.is_terminal else False))
    for name, draw, of in (("digits", example.digits_of, gan), ("curves", example.curves_of, course)):
        picture = io.BytesIO()
        draw(of).savefig(picture, format="png")
        write_whole(given.output / f"{name}.png", picture.getvalue())
        written.append(given.output / f"{name}.png")
    late = course[-max(len(course) // 10, 1) :]
    console.print(
        f"{given.steps} steps in {time.perf_counter() - began:.1f} s, compilation included."
        f" At the end: Wasserstein estimate {_mean(late, 'distance'):.2f},"
        f" mean gradient norm {_mean(late, 'gradient_norm'):.2f} (the penalty pulls it to 1).",
        highlight=False,
    )
    for path in written:
        console.print(f"  {path}", markup=False, highlight=False, soft_wrap=True)


def _mean(lines: Sequence[Mapping[str, float]], name: str) -> float:
    return sum([line[name] for line in lines]) / len(lines)
