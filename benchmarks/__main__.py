"""`python -m benchmarks`: run the benchmarks and print, or write, the table."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
from pathlib import Path

import jax
from rich.console import Console
from rich.table import Table

from nngrad.installation import version_of

from . import building, classifier, critic
from .timing import Row

BENCHMARKS = {"building": building.run, "critic": critic.run, "classifier": classifier.run}
RESULTS = Path(__file__).with_name("RESULTS.md")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHMARKS)} (all by default)")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that everything runs")
    parser.add_argument("--write", action="store_true", help=f"write the table into {RESULTS.name}")
    options = parser.parse_args()
    unknown = set(options.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    torch = importlib.util.find_spec("torch") is not None
    rows = [
        line for name, run in BENCHMARKS.items() if not options.names or name in options.names
        for line in run(options.smoke, torch)
    ]
    show(rows)
    if options.write:
        write(rows)


def show(rows: list[Row]) -> None:
    """Print the table."""
    table = Table("what", "nngrad", "peer", "ratio", "goal", title=machine())
    for r in rows:
        missed = r.goal is not None and r.ratio > r.goal
        table.add_row(r.what, r.ours, r.peer, f"[{'red' if missed else 'green'}]{r.ratio:.3f}[/]", goal_of(r))
    Console(width=150).print(table)


def write(rows: list[Row]) -> None:
    """Put the table into RESULTS.md, between its markers."""
    lines = ["| what | nngrad | peer | ratio | goal |", "| --- | --- | --- | ---: | ---: |"]
    lines += [f"| {r.what} | {r.ours} | {r.peer} | {r.ratio:.3f} | {goal_of(r)} |" for r in rows]
    text = RESULTS.read_text()
    head, _, rest = text.partition("<!-- table -->")
    _, _, tail = rest.partition("<!-- end of table -->")
    table = "\n".join([machine(), "", *lines])
    RESULTS.write_text(f"{head}<!-- table -->\n{table}\n<!-- end of table -->{tail}")


def goal_of(r: Row) -> str:
    """The wanted ratio, for the table."""
    return "" if r.goal is None else f"≤ {r.goal:g}"


def machine() -> str:
    """What it ran on."""
    found = {name: version_of(name) for name in ("nngrad", "jax", "torch")}
    versions = [f"{name} {version}" for name, version in found.items() if version]
    device = jax.devices()[0]
    cores = f"{os.cpu_count()} {platform.machine()} cores"
    return f"{device.device_kind} ({device.platform}), {cores}, {', '.join(versions)}"


if __name__ == "__main__":
    main()
