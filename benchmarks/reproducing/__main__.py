"""`python -m benchmarks.reproducing NAME`: run a published comparison, draw it, and write its part of the page."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

import nngrad as nn

from .. import report
from . import drawing, pages
from .experiment import Experiment, measured

PAGES = report.ROOT / "docs" / "reproduced"
PAGE = PAGES / "papers.md"
FILES = report.ROOT / "benchmarks" / "reproduced"


def names() -> list[str]:
    """The names of the experiments, which are those of their files."""
    return sorted(path.stem for path in FILES.glob("[!_]*.py"))


def experiment_of(name: str) -> Experiment:
    """The experiment of a file."""
    found: Experiment = importlib.import_module(f"benchmarks.reproduced.{name}").EXPERIMENT
    return found


def draw(name: str, folder: Path) -> None:
    """Draw the kept figures of `folder`."""
    drawing.draw(experiment_of(name), pages.load(folder / f"{name}.json")[1], folder / f"{name}.svg")


def page() -> str:
    """The page with the figures that are kept beside it."""
    kept = [name for name in names() if (PAGES / f"{name}.json").exists()]
    made = {name: pages.made(name, experiment_of(name), *pages.load(PAGES / f"{name}.json")) for name in kept}
    return pages.with_figures(PAGE.read_text(encoding="utf-8"), made)


@nn.deterministic()  # what is measured is the best executable
def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproducing", description=__doc__)
    parser.add_argument("name", nargs="?", choices=names(), metavar="NAME", help=", ".join(names()))
    parser.add_argument("--list", action="store_true", help="list them")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help=f"where it writes (default: {PAGES})")
    parser.add_argument("--pages", action="store_true",
                        help="measure nothing: draw the kept figures (all by default) and write the page again")
    options = parser.parse_args()
    if options.list:
        for name in names():
            print(f"{name:24} {experiment_of(name).title}")
    elif options.pages:
        for name in [options.name] if options.name else names():
            draw(name, PAGES)
        PAGE.write_text(page(), encoding="utf-8")
    elif options.name is None:
        parser.error(f"name one of {', '.join(names())}")
    else:
        _run(options.name, options.smoke, options.out)


def _run(name: str, smoke: bool, out: Path | None) -> None:
    rows = measured(experiment_of(name), smoke)
    if smoke and out is None:
        return
    folder = out or PAGES
    folder.mkdir(parents=True, exist_ok=True)
    report.keep(folder / f"{name}.json", rows, ("torch", "folx"))
    draw(name, folder)
    if out is None:
        PAGE.write_text(page(), encoding="utf-8")
    print(f"{folder / name}.svg and .json are written")


if __name__ == "__main__":
    main()
