"""`python -m benchmarks`: run the benchmarks and print, or keep, the table."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
from rich.console import Console
from rich.table import Table

import nngrad as nn
from nngrad.extend import Executable

from . import report
from .check import check, counts
from .harness import Row, measured, module_of

PARTS = (
    "building", "critic", "classifier", "rebuilding", "derivatives", "physics", "operators",
    "operator_learning", "order_four", "packages", "catalogue", "loops", "passes", "per_sample", "sparse",
    "forward_laplacian", "attention", "curvature", "potential", "training", "stochastic", "memory", "viewing",
    "first_result", "scaling", "growth",
)  # fmt: skip
"""Each is a file here, and one of results."""


@nn.deterministic()  # what is measured is the best executable
def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(PARTS)} (all by default)")
    parser.add_argument("--smoke", action="store_true",
                        help="tiny sizes, to see that everything runs, and that it is lowered for other platforms")
    parser.add_argument("--rotating", type=int, metavar="N", choices=range(1, 10), default=1,
                        help="with --smoke: every Nth benchmark, others with each commit")
    parser.add_argument("--write", action="store_true", help="keep the figures, and write the pages that show them")
    parser.add_argument("--pages", action="store_true", help="write the pages from the kept figures, measure nothing")
    parser.add_argument("--check", action="store_true",
                        help="measure the lines of the first tables again, and say which are worse than kept")
    parser.add_argument("--counts", action="store_true",
                        help="compile, count temporaries and arithmetic again, and say which are worse than kept")
    options = parser.parse_args()
    unknown = set(options.names) - set(PARTS)
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if options.smoke and options.write:
        parser.error("--smoke gives no figures worth writing")
    if options.rotating > 1 and not options.smoke:
        parser.error("--rotating is for --smoke")
    names = [name for name in PARTS if name in (options.names or PARTS)]
    if options.pages:
        report.write_pages()
        return
    if options.check:
        raise SystemExit(min(check(), 1))
    if options.counts:
        raise SystemExit(min(counts(names), 1))
    if options.rotating > 1:
        names = names[commits() % options.rotating :: options.rotating]
        print(f"of {len(PARTS)} benchmarks: {', '.join(names)}", flush=True)
    run(names, options.smoke, options.write)


def run(names: list[str], smoke: bool, write: bool) -> None:
    """Measure, print, and perhaps keep."""
    rows: list[Row] = []
    with lowered_too() if smoke else nullcontext() as lowered:
        for name in names:
            of_part = measured(name, smoke)
            rows += of_part
            if write:
                folder = report.KEPT if jax.default_backend() == "cpu" else report.ON_GPU
                report.keep(folder / f"{name}.json", of_part)
                if hasattr(module_of(name), "save"):
                    module_of(name).save()
    show(rows)
    if lowered is not None:
        print(f"{len(lowered)} programs were lowered for other platforms as well")
    if write:
        report.write_pages()


@contextmanager
def lowered_too() -> Iterator[list[set[str]]]:
    """Within, each program that nngrad traces to compile it is lowered for platforms that are not at hand as well.

    Raises:
        ValueError: At the end: one calls what is for CPUs.
    """
    from tests.lowered import PLATFORMS, detours, lowered_for

    found: list[set[str]] = []
    look_at = Executable._look_at

    def and_lower(executable: Executable, traced: Any) -> None:
        look_at(executable, traced)
        found.append(set(detours(lowered_for(traced, *PLATFORMS))))

    with patch.object(Executable, "_look_at", and_lower):
        yield found
    if any(found):
        raise ValueError(f"of {len(found)} programs lowered for {', '.join(PLATFORMS)} some call "
                         f"{', '.join(sorted(set().union(*found)))}, which is for CPUs")


def commits() -> int:
    """How many there are before the present state; 0 where there is no repository."""
    ask = ["git", "rev-list", "--count", "HEAD"]
    done = subprocess.run(ask, cwd=Path(__file__).parent, capture_output=True, text=True)
    return int(done.stdout or 0)


def show(rows: list[Row]) -> None:
    """Print the table."""
    table = Table("what", "nngrad", "peer", "ratio", title=report.machine())
    for r in rows:
        table.add_row(r.what, r.ours, r.peer, f"[{'red' if r.ratio > 1 else 'green'}]{r.ratio:.3f}[/]")
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
