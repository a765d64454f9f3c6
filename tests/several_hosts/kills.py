"""`python -m tests.several_hosts.kills`: a run of 2 processes, killed at random times, and started again each time.

At the end its parameters must be those of an undisturbed run, bit by bit. Every kill must end the whole run within the
limit that it is given, by naming the process.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from pathlib import Path

from .running import launched

LIMIT = 60.0
"""Seconds in which all must have ended after a kill, on a busy machine."""


def main() -> None:
    """Parse the command line, and kill."""
    parser = argparse.ArgumentParser(prog="python -m tests.several_hosts.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=15)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as folder:
        run = "-n", given.processes, "-m", "tests.several_hosts.resuming", Path(folder) / "checkpoints"
        last = 0
        for number in range(1, given.kills + 1):
            seconds, which = chance.uniform(0, 5), chance.randrange(given.processes)
            done = launched(*run, 1_000_000, "--kill", f"{seconds:.3f}", which, limit=300)
            began = re.search(r"(\d+\.\d+) it fails", done.stdout)
            if began is None or done.returncode != 137 or f"process {which} (pid" not in done.stderr:
                sys.exit(f"kill {number}: {done.returncode}\n{done.stdout}{done.stderr}")
            took = time.time() - float(began[1]) - seconds
            first, last = int(re.findall(r"after step (\d+)", done.stdout)[0]), _last(done.stdout, last)
            print(f"kill {number}: process {which}, {seconds:.2f} s after a first step; steps {first + 1} to {last}; "
                  f"all ended {took:.1f} s later", flush=True)
            assert took < LIMIT
        done = launched(*run, last + 3, "--compare", limit=300)
        print(f"exit code {done.returncode}: {re.findall('the same bit by bit.*', done.stdout)}")
        sys.exit(done.returncode)


def _last(text: str, before: int) -> int:
    return max([before, *map(int, re.findall(r"\bstep (\d+)$", text, re.MULTILINE))])


if __name__ == "__main__":
    main()
