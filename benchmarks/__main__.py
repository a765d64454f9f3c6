"""`python -m benchmarks`: run the benchmarks and print, or write, the table."""

from __future__ import annotations

import argparse
import subprocess
from contextlib import nullcontext
from pathlib import Path

import jax
from rich.console import Console
from rich.table import Table

import nngrad as nn

from . import (
    building,
    catalogue,
    classifier,
    conv_nets,
    critic,
    derivatives,
    drop_in,
    first_result,
    growth,
    history,
    loops,
    memory,
    operators,
    order_four,
    packages,
    passes,
    per_sample,
    physics,
    rebuilding,
    report,
    scaling,
    steering,
    stochastic,
    viewing,
)
from .frontier import attention, curvature, forward_laplacian, operator_learning, potential, sparse, training
from .lowering import PLATFORMS, lower_cases_of_other_processes, lowered_too
from .scaling import table as scaling_table
from .timing import Row, torch_beside_jax

BENCHMARKS = {
    module.__name__.rpartition(".")[2]: module.run
    for module in (
        building, critic, conv_nets, classifier, rebuilding, derivatives, drop_in, physics, operators,
        operator_learning, order_four, packages, catalogue, loops, passes, per_sample, sparse, steering,
        forward_laplacian, attention, curvature, potential, training, stochastic, memory, viewing, first_result,
        scaling,
    )
}


@nn.deterministic()  # what is measured is the best executable
def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHMARKS)} (all by default)")
    parser.add_argument("--smoke", action="store_true",
                        help="tiny sizes, to see that everything runs, and that it is lowered for other platforms")
    parser.add_argument("--rotating", type=int, metavar="N", choices=range(1, 10), default=1,
                        help="with --smoke: every Nth benchmark, others with each commit")
    parser.add_argument("--write", action="store_true", help="keep the figures, and write the pages that show them")
    parser.add_argument("--pages", action="store_true", help="write the pages from the kept figures, measure nothing")
    parser.add_argument("--history", type=Path, metavar="DIR",
                        help="draw how the kept figures moved from commit to commit, a page for each benchmark")
    options = parser.parse_args()
    unknown = set(options.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    torch = torch_beside_jax()
    if options.smoke and options.write:
        parser.error("--smoke gives no figures worth writing")
    if options.rotating > 1 and not options.smoke:
        parser.error("--rotating is for --smoke")
    names = [name for name in BENCHMARKS if name in (options.names or BENCHMARKS)]
    if options.rotating > 1:
        names = names[commits() % options.rotating :: options.rotating]
        print(f"of {len(BENCHMARKS)} benchmarks: {', '.join(names)}", flush=True)
    if options.pages:
        report.write_pages()
        return
    if options.history is not None:
        history.draw(names, options.history)
        return
    with lowered_too() if options.smoke else nullcontext() as lowered:
        tables = {name: BENCHMARKS[name](options.smoke, torch) for name in names}
        if options.smoke and "first_result" in names:
            lower_cases_of_other_processes()
    show([line for rows in tables.values() for line in rows])
    if lowered is not None:
        assert lowered.count or options.names, "nothing was lowered"
        print(f"{lowered.count} programs were lowered for {', '.join(PLATFORMS)} as well")
    if options.write:
        write(tables)


def commits() -> int:
    """How many there are before the present state; 0 where there is no repository."""
    ask = ["git", "rev-list", "--count", "HEAD"]
    done = subprocess.run(ask, cwd=Path(__file__).parent, capture_output=True, text=True)
    return int(done.stdout or 0)


def show(rows: list[Row]) -> None:
    """Print the table."""
    table = Table("what", "nngrad", "peer", "ratio", "goal", title=report.machine())
    for r in rows:
        missed = r.goal is not None and r.ratio > r.goal
        table.add_row(r.what, r.ours, r.peer, f"[{'red' if missed else 'green'}]{r.ratio:.3f}[/]", goal_of(r))
    Console(width=150).print(table)


def write(tables: dict[str, list[Row]]) -> None:
    """Keep the figures, and make the pages and plots that show them."""
    folder = report.KEPT if jax.default_backend() == "cpu" else report.ON_GPU
    for name, rows in tables.items():
        report.keep(folder / f"{name}.json", rows)
    if folder == report.KEPT and "derivatives" in tables:
        figures = derivatives.measured(False)
        growth.save(figures)
        growth.draw(figures, growth.PICTURE)
    if "scaling" in tables:
        scaling_table.draw(scaling_table.load(), scaling_table.PICTURE)
    report.write_pages()


def goal_of(r: Row) -> str:
    """The wanted ratio, for the table."""
    return "" if r.goal is None else f"≤ {r.goal:g}"


if __name__ == "__main__":
    main()
