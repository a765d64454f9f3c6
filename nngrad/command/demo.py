"""`nngrad demo`: train a Wasserstein GAN with gradient penalty to draw digits."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path

import jax

from nngrad_command.arguments import natural, positive
from nngrad_command.installation import missing
from nngrad_command.outcome import has_devices, reported

from ..execution import cache_compilations
from .console import complain_of_import, console_of_output, lacks

DESCRIPTION = (
    "Train a WGAN-GP on scikit-learn's 8x8 digits and write pictures of the digits that it draws and of the training "
    "curves. Takes about a minute on two CPU cores; needs matplotlib and scikit-learn."
)


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
        from .digits import draw_digits
    except Exception as error:
        complain_of_import("demo", error)
        return 1
    if not has_devices("demo", jax.devices):
        return 1
    with suppress(OSError):  # without a cache it takes longer
        cache_compilations()
    draw_digits(given.steps, given.output, given.seed, given.device, console_of_output())
    return 0
