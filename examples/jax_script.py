"""What the examples for JAX users share: the command line with --peer, and times of the first result and of a step."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from nngrad_command.installation import install_command, missing


class Timing(NamedTuple):
    """How long a function of arrays takes."""

    first: float
    """Seconds from the call to the first result: tracing, compiling and one run."""
    step: float
    """Seconds of a run after that, the median."""


class Result(NamedTuple):
    """What an example found."""

    error: float
    """The distance from what is known; what it measures is said by the example."""
    timing: Timing
    draw: Callable[[Path], None] | None = None
    """Draws a picture into a file."""


def timed(steps: Iterator[Any]) -> Timing:
    """Run steps to their end, each waited for."""
    times = []
    while True:
        began = time.perf_counter()
        try:
            jax.block_until_ready(next(steps))
        except StopIteration:
            break
        times.append(time.perf_counter() - began)
    return Timing(times[0], float(np.median(times[1:] or times)))


def main(
    solve: Callable[[int, Any], Result],
    description: str,
    steps: int,
    bound: float,
    ours: Any,
    theirs: Any,
    arguments: Sequence[str] | None = None,
) -> int:
    """Run an example from the command line, or the code that it had before.

    Args:
        solve: The example: takes a number of steps, and the derivatives to use.
        description: Says what it does; the first line is shown by `--help`.
        steps: Steps that it takes by default.
        bound: The largest error with which it has done what it should.
        ours: The derivatives by nngrad.jax.
        theirs: Those of the code as it was.
        arguments: Those of the command line; by default those of the process.

    Returns:
        The exit code: 0, or 1 if the error is above the bound, or if a library is not installed.
    """
    parser = argparse.ArgumentParser(
        description=description.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=steps, help="steps")
    parser.add_argument("--peer", choices=["jax"], help="run the code as it was, by JAX alone")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="where to draw a picture, if the example has one")
    given = parser.parse_args(arguments)
    if given.steps < 2:
        parser.error("--steps must be at least 2")
    lacking = missing("models")
    if lacking:
        print(f"This installs what the example lacks:\n\n    {install_command(lacking)}\n", file=sys.stderr)
        return 1
    error, timing, draw = solve(given.steps, theirs if given.peer else ours)
    if given.picture is not None and draw is not None:
        draw(given.picture)
    good = error <= bound
    verdict = f"{'within' if good else 'ABOVE'} the bound {bound:.0e}"
    if not good and given.steps < steps:
        verdict += f", which is meant for {steps:,} steps"
    by = "JAX" if given.peer else "nngrad.jax"
    print(f"{by}: first result {timing.first:.2f} s, a step {1e3 * timing.step:.2f} ms; error {error:.2e}, {verdict}")
    return 0 if good else 1
