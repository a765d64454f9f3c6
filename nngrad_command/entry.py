"""The entry point of the `nngrad` command: `nngrad doctor` does not import nngrad, `nngrad demo` does."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from . import __version__, doctor
from .outcome import cause_of, complain, error_line, exit_code

DESCRIPTION = "nngrad turns a computation into the graph of its gradients, to any order, on JAX."
DEMO = (
    "Train a WGAN-GP on scikit-learn's 8x8 digits and write pictures of the digits that it draws and of the training "
    "curves. Takes about a minute on two CPU cores; needs matplotlib and scikit-learn."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `arguments` (by default those of the process), and return the exit code."""
    return exit_code(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    top = argparse.ArgumentParser(prog="nngrad", description=DESCRIPTION)
    top.add_argument("--version", action="store_true", help="show the version and exit")
    commands = top.add_subparsers(title="commands", metavar="COMMAND")
    demo = commands.add_parser("demo", description=DEMO,
                               help="train a small GAN with a gradient penalty, and draw what it makes")
    demo.add_argument("--steps", type=int, default=10000, metavar="N",
                      help="steps of the generator (default: %(default)s)")
    demo.add_argument("--output", type=Path, default=Path("nngrad-demo"), metavar="DIR",
                      help="folder for the pictures (default: %(default)s)")
    demo.add_argument("--seed", type=int, default=0, metavar="S", help="seed of all that is random (default: 0)")
    demo.add_argument("--device", choices=("cpu", "cuda"), help="where to run (default: a GPU where JAX sees one)")
    demo.set_defaults(run=_demo)
    command = commands.add_parser("doctor", description=doctor.DESCRIPTION,
                                  help="show versions and devices, and what is missing or broken")
    command.add_argument("--time-limit", type=float, default=120.0, metavar="SECONDS",
                         help="how long imports and devices may take to answer (default: 120)")
    command.set_defaults(run=lambda options: doctor.examine(options.time_limit))
    options = top.parse_args(arguments)
    if options.version:  # argparse's own way ignores errors of the output
        print(f"nngrad {__version__}")
        return 0
    if "run" not in options:
        top.error("the following arguments are required: COMMAND")
    code: int = options.run(options)
    return code


def _demo(options: argparse.Namespace) -> int:
    try:
        from nngrad.command.demo import run
    except Exception as error:
        complain(f"nngrad cannot be imported: {error_line(cause_of(error))}\n"
                 "`nngrad doctor` says what is broken and what to do.")
        return 1
    return run(options.steps, options.output, options.seed, options.device)
