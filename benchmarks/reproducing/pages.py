"""The page of the comparisons, made of their prose and of the kept figures.

After a merge of branches that both add comparisons, `python -m benchmarks.reproducing --pages` makes it anew.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .experiment import Experiment, Measured

_PAGE = """\
# Others' tables, reproduced
Comparisons from papers, at a size that two CPU cores can handle, with nngrad beside the methods of the papers. In a
clone of the repository, `nngrad reproduce NAME` runs one, with those packages of `nngrad[reproduce]` that are
installed, draws its figure and writes this page; `nngrad reproduce --list` lists them.

The methods of a point ran in turns in one process, on a machine that was doing other work: compare ratios. Memory is
what the compiler allocates besides arguments and results, without libraries' fused kernels, whose memory it does not
count; for PyTorch, the peak of its allocations in a call, minus the results. The lists name what nngrad takes more
than a twentieth more of, as a multiple.
"""
_SECTION = """
## {title}
[{paper}]({url}). {measured}

![{title}: {quantities}]({name}.svg)

{ran}

{lost}

{differs}
"""
_MEASURED = "All figures are in [{name}.json]({name}.json): of {date} on {machine}; times are {of_rounds}."


def load(path: Path) -> tuple[dict[str, Any], list[Measured]]:
    """What is kept of a run: machine and date, and the figures."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    return kept, [Measured(**row) for row in kept["rows"]]


def page(kept: Mapping[str, tuple[Experiment, Mapping[str, Any], Sequence[Measured]]]) -> str:
    """The page with a section for each comparison, by its name, with lines as long as those of other pages."""
    text = _PAGE + "".join([_section(name, *of_it) for name, of_it in kept.items()])
    return "\n".join([_wrapped(line) for line in text.splitlines()]) + "\n"


def _section(name: str, experiment: Experiment, kept: Mapping[str, Any], rows: Sequence[Measured]) -> str:
    ran = {m.method for m in rows}
    absent = [method for method in experiment.needs if method not in ran]
    of_rounds = "the minimum over all rounds" if experiment.least else "medians"
    measured = _MEASURED.format(name=name, date=kept["date"], machine=kept["machine"], of_rounds=of_rounds)
    measured += f" Left out, since their packages were not there: {', '.join(absent)}." if absent else ""
    prose = {key: getattr(experiment, key).strip() for key in ("title", "paper", "url", "ran", "differs")}
    quantities = ", ".join([experiment.quantity(q).title for q in experiment.measured])
    return _SECTION.format(name=name, **prose, measured=measured, quantities=quantities, lost=_lost(experiment, rows))


def _wrapped(line: str) -> str:
    if len(line) <= 132 or line.startswith(("|", "!", "#")):
        return line
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, 132, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def ratio(ours: float, other: float) -> float:
    """What nngrad takes over what another takes; 1 where neither takes anything."""
    return ours / other if other else 1.0 if not ours else float("inf")


def _lost(experiment: Experiment, rows: Iterable[Measured]) -> str:
    """What takes more than a twentieth above another's: of each table and quantity the ratios to each method."""
    rows = list(rows)
    mine = {(m.table, m.x, m.quantity): m.value for m in rows if m.method == experiment.ours}
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for m in rows:
        more = ratio(mine.get((m.table, m.x, m.quantity), 0.0), m.value)
        if m.method != experiment.ours and more > 1.05:
            found.setdefault((m.table, m.quantity), {}).setdefault(m.method, []).append(more)
    if not found:
        return "nngrad takes nowhere more."
    return "nngrad takes more here:\n\n" + "\n".join([
        f"- {table}, {experiment.quantity(quantity).title}: "
        + ", ".join([f"{_range(ratios)} ({method})" for method, ratios in by_method.items()])
        for (table, quantity), by_method in found.items()
    ])


def _range(ratios: Sequence[float]) -> str:
    least, most = f"{min(ratios):.2g}", f"{max(ratios):.2g}"
    return least if least == most else f"{least} to {most}"
