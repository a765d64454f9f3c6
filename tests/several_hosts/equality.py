"""`python -m tests.several_hosts.equality`: what 2 and 4 processes compute, against one.

It prints the largest differences of losses and parameters, relative to the largest value of each array.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

from .programs import PROGRAMS, Results
from .running import launched


def differences(found: Results, expected: Results) -> dict[str, float]:
    """The largest relative difference of each kind of result, over all arrays."""
    assert found.keys() == expected.keys()
    largest: dict[str, float] = {}
    for key, value in expected.items():
        program, _, name = key.partition(": ")
        kind = f"{program}: {'losses' if name == 'losses' else 'parameters'}"
        assert np.isfinite(value).all(), key
        scale = max(float(np.abs(value).max()), 1e-3)
        largest[kind] = max(largest.get(kind, 0.0), float(np.abs(found[key] - value).max()) / scale)
    return largest


def results_of(count: int, steps: int, folder: Path) -> Results:
    """What `count` processes compute."""
    file = folder / f"{count}.npz"
    done = launched("-n", count, "-m", "tests.several_hosts.programs", steps, file, limit=600)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    with np.load(file) as arrays:
        return dict(arrays)


def main() -> None:
    """Parse the command line, run, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.several_hosts.equality", description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        expected = results_of(1, given.steps, Path(folder))
        for count in given.processes:
            for kind, difference in differences(results_of(count, given.steps, Path(folder)), expected).items():
                print(f"{count} processes, {given.steps} steps, {kind}: {difference:.1e}", flush=True)
    assert len(PROGRAMS) == 3


if __name__ == "__main__":
    main()
