"""`python -m benchmarks.reproducing NAME`: run a published comparison, draw it, and write its part of the page.

What is between the marks of the page is made of the kept figures; its prose is written there.
"""

from __future__ import annotations

import argparse
import importlib
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import nngrad as nn

from . import drawing, report
from .experiment import Experiment, Measured, measured

PAGES = report.ROOT / "docs" / "reproduced"
PAGE = PAGES / "papers.md"
_MADE = """\
All figures are in [{name}.json]({name}.json): of {date} on {machine}.

![{title}: {quantities}]({name}.svg)

{lost}
"""


def names() -> list[str]:
    """The names of the experiments, which are those of their files."""
    return sorted(path.stem for path in (Path(__file__).parent / "reproduced").glob("[!_]*.py"))


def experiment_of(name: str) -> Experiment:
    """The experiment of a file."""
    found: Experiment = importlib.import_module(f"benchmarks.reproduced.{name}").EXPERIMENT
    return found


def kept(name: str) -> tuple[dict[str, Any], list[Measured]]:
    """What is kept of a run: machine and date, and the figures."""
    found = report.load(name, PAGES)
    return found, [Measured(**row) for row in found["rows"]]


def page() -> str:
    """The page with the figures that are kept beside it."""
    made_now = {name: made(name, experiment_of(name), *kept(name)) for name in names()}
    return with_figures(PAGE.read_text(encoding="utf-8"), made_now)


def with_figures(text: str, made: Mapping[str, str]) -> str:
    """A page with what was made for each comparison between its marks.

    Raises:
        ValueError: The page has no marks for one.
    """
    for name, inside in made.items():
        marks = f"<!-- {name}: made by benchmarks.reproducing -->\n\n", f"\n<!-- end of {name} -->"
        block = re.compile(f"(?<={marks[0]}).*?(?={marks[1]})", re.DOTALL)
        text, count = block.subn(lambda _, inside=inside: inside, text)
        if not count:
            raise ValueError(f"{name}: the page has no {marks[0].strip()}, nor its end")
    return text


def made(name: str, experiment: Experiment, of_run: Mapping[str, Any], rows: Sequence[Measured]) -> str:
    """What is made for a comparison, with lines as long as those of other pages."""
    quantities = ", ".join([experiment.quantities[q].title for q in experiment.measured])
    text = _MADE.format(
        name=name, title=experiment.title, quantities=quantities, lost=_lost(experiment, rows), date=of_run["date"],
        machine=of_run["machine"],
    )  # fmt: skip
    return "\n".join([_wrapped(line) for line in text.splitlines()]) + "\n"


def _wrapped(line: str) -> str:
    if len(line) <= 132 or line.startswith("!"):
        return line
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, 132, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _lost(experiment: Experiment, rows: Iterable[Measured]) -> str:
    """What takes more than a twentieth above another's: of each table and quantity the ratios to each method."""
    rows = list(rows)
    mine = {(m.table, m.x, m.quantity): m.value for m in rows if m.method == experiment.ours}
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for m in rows:
        ours = mine.get((m.table, m.x, m.quantity), 0.0)
        more = ours / m.value if m.value else float("inf") if ours else 1.0
        if m.method != experiment.ours and more > 1.05:
            found.setdefault((m.table, m.quantity), {}).setdefault(m.method, []).append(more)
    if not found:
        return "nngrad takes nowhere more."
    return "nngrad takes more here:\n\n" + "\n".join([
        f"- {table}, {experiment.quantities[quantity].title}: "
        + ", ".join([f"{_range(ratios)} ({method})" for method, ratios in by_method.items()])
        for (table, quantity), by_method in found.items()
    ])


def _range(ratios: Sequence[float]) -> str:
    least, most = f"{min(ratios):.2g}", f"{max(ratios):.2g}"
    return least if least == most else f"{least} to {most}"


@nn.deterministic()  # what is measured is the best executable
def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproducing", description=__doc__)
    told = f"all by default: {', '.join(names())}"
    parser.add_argument("name", nargs="?", choices=names(), metavar="NAME", help=told)
    parser.add_argument("--pages", action="store_true", help="measure nothing: draw the kept figures")
    options = parser.parse_args()
    for name in [options.name] if options.name else names():
        if not options.pages:
            report.keep(PAGES / f"{name}.json", measured(experiment_of(name), False), ("torch", "folx"))
        drawing.draw(experiment_of(name), kept(name)[1], PAGES / f"{name}.svg")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
