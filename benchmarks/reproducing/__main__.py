"""`python -m benchmarks.reproducing NAME`: run a published comparison, draw it, and write its page."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

import nngrad as nn

from .. import report
from . import drawing, pages
from .experiment import Experiment, measured

PAGES = report.ROOT / "docs" / "reproduced"
FILES = report.ROOT / "benchmarks" / "reproduced"


def names() -> list[str]:
    """The names of the experiments, which are those of their files."""
    return sorted(path.stem for path in FILES.glob("[!_]*.py"))


def experiment_of(name: str) -> Experiment:
    """The experiment of a file."""
    found: Experiment = importlib.import_module(f"benchmarks.reproduced.{name}").EXPERIMENT
    return found


def write(name: str, folder: Path) -> None:
    """Draw the kept figures of `folder`, and write the page there."""
    experiment = experiment_of(name)
    kept, rows = pages.load(folder / f"{name}.json")
    drawing.draw(experiment, rows, folder / f"{name}.svg")
    (folder / f"{name}.md").write_text(pages.page(name, experiment, kept, rows), encoding="utf-8")


def write_index() -> None:
    """Write the page that lists those of which figures are kept."""
    (PAGES / "index.md").write_text(index(), encoding="utf-8")


def index() -> str:
    """The text of that page."""
    return pages.index({name: experiment_of(name) for name in kept()})


def kept() -> list[str]:
    """The names of those of which figures are kept."""
    return [name for name in names() if (PAGES / f"{name}.json").exists()]


@nn.deterministic()  # what is measured is the best executable
def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproducing", description=__doc__)
    parser.add_argument("name", nargs="?", choices=names(), metavar="NAME", help=", ".join(names()))
    parser.add_argument("--list", action="store_true", help="list them")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help=f"where it writes (default: {PAGES})")
    parser.add_argument("--pages", action="store_true",
                        help="measure nothing: draw the kept figures and write the pages again (all by default)")
    options = parser.parse_args()
    folder = options.out or PAGES
    if options.list:
        for name in names():
            print(f"{name:24} {experiment_of(name).title}")
    elif options.pages:
        for name in [options.name] if options.name else kept():
            write(name, folder)
        write_index()
    elif options.name is None:
        parser.error(f"name one of {', '.join(names())}")
    else:
        _run(options.name, options.smoke, None if options.smoke and options.out is None else folder)


def _run(name: str, smoke: bool, folder: Path | None) -> None:
    experiment = experiment_of(name)
    for method, module in experiment.absent().items():
        print(f"{method} is left out: there is no package {module}")
    rows = measured(experiment, smoke)
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    report.keep(folder / f"{name}.json", rows, dict.fromkeys(experiment.needs.values()))
    write(name, folder)
    print(f"{folder / name}.md, .svg and .json are written")


if __name__ == "__main__":
    main()
