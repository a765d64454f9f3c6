"""The page of a comparison, made of its prose and of the kept figures, and the page that lists them all.

After a merge of branches that both add comparisons, `python -m benchmarks.reproducing --pages` makes that list anew.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .drawing import methods_of, panels_of
from .experiment import Experiment, Measured

_PAGE = """\
# {title}
[{paper}]({url}).

## What the paper says
{says}

## What was run
{ran}

{measured}

## Figure
![{title}: {quantities}]({name}.svg)

## Figures
In brackets: nngrad's figure divided by the method's; below 1 nngrad takes less. All are in [{name}.json]({name}.json).
{tables}
## Where nngrad takes more
{lost}

## What differs, and why
{differs}
"""
_INDEX = """\
# Others' tables, reproduced
These pages repeat comparisons from papers at a size that two CPU cores can handle, and add nngrad to the methods of the
papers. In a clone of the repository, `nngrad reproduce NAME` runs one, with those packages of `nngrad[reproduce]` that
are installed, and writes its figure and its page; `nngrad reproduce --list` lists them.

{entries}
"""
_MEASURED = (
    "`nngrad reproduce {name}` repeats the measurement. These figures are of {date} on {machine}. The methods of a "
    "point ran in turns in one process; times are {of_rounds}. The machine was doing other work: compare ratios."
)
_MEMORY = (
    " Memory is what the compiler allocates besides arguments and results, without libraries' fused kernels, whose "
    "memory it does not count; for PyTorch, the peak of its allocations in a call, minus the results."
)


def load(path: Path) -> tuple[dict[str, Any], list[Measured]]:
    """What is kept of a run: machine and date, and the figures."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    return kept, [Measured(**row) for row in kept["rows"]]


def page(name: str, experiment: Experiment, kept: Mapping[str, Any], rows: Sequence[Measured]) -> str:
    """The page, with lines as long as those of other pages."""
    ran = {m.method for m in rows}
    absent = [method for method in experiment.needs if method not in ran]
    of_rounds = "the minimum over all rounds" if experiment.least else "medians"
    measured = _MEASURED.format(name=name, date=kept["date"], machine=kept["machine"], of_rounds=of_rounds)
    measured += _MEMORY if "temporaries" in experiment.measured else ""
    measured += f" Left out, since their packages were not there: {', '.join(absent)}." if absent else ""
    prose = {key: getattr(experiment, key).strip() for key in ("title", "paper", "url", "says", "ran", "differs")}
    text = _PAGE.format(
        name=name, **prose, measured=measured,
        quantities=", ".join([experiment.quantity(q).title for q in experiment.measured]),
        tables="".join([_table(experiment, *panel) for panel in panels_of(experiment, rows)]),
        lost=_lost(experiment, rows),
    )  # fmt: skip
    return "\n".join([_wrapped(line) for line in text.splitlines()]) + "\n"


def index(experiments: Mapping[str, Experiment]) -> str:
    """The page that lists them."""
    entries = [f"- [{e.title}]({name}.md): {e.paper}" for name, e in experiments.items()]
    return _INDEX.format(entries="\n".join(entries))


def _wrapped(line: str) -> str:
    if len(line) <= 132 or line.startswith(("|", "!", "#")):
        return line
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, 132, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _table(experiment: Experiment, table: str, quantity: str, inside: Sequence[Measured]) -> str:
    title, scale, unit = experiment.quantity(quantity)
    methods = methods_of(experiment, inside)
    values = {(m.x, m.method): m.value for m in inside}
    text = f"\n### {table}: {title}{f' ({unit})' if unit else ''}\n"
    text += f"| {inside[0].axis} | {' | '.join(methods)} |\n| ---: |{' ---: |' * len(methods)}\n"
    for x in dict.fromkeys([m.x for m in inside]):
        cells = [_cell(values, x, method, experiment.ours, scale) for method in methods]
        text += f"| {x if isinstance(x, str) else f'{x:,g}'} | {' | '.join(cells)} |\n"
    return text


def _cell(values: Mapping[Any, float], x: Any, method: str, ours: str, scale: float) -> str:
    if (x, method) not in values:
        return "-"
    value = values[x, method]
    shown = f"{value * scale:,.3g}" if value * scale < 1000 else f"{value * scale:,.0f}"
    return shown if method == ours or (x, ours) not in values else f"{shown} ({ratio(values[x, ours], value):.2g})"


def ratio(ours: float, other: float) -> float:
    """What nngrad takes over what another takes; 1 where neither takes anything."""
    return ours / other if other else 1.0 if not ours else float("inf")


def _lost(experiment: Experiment, rows: Iterable[Measured]) -> str:
    """Each figure that is larger than a twentieth above another's, by table, quantity and method."""
    rows = list(rows)
    mine = {(m.table, m.x, m.quantity): m.value for m in rows if m.method == experiment.ours}
    found: dict[tuple[str, str, str], list[str]] = {}
    for m in rows:
        more = ratio(mine.get((m.table, m.x, m.quantity), 0.0), m.value)
        if m.method != experiment.ours and more > 1.05:
            at = m.x if isinstance(m.x, str) else f"{m.x:,g}"
            found.setdefault((m.table, m.quantity, m.method), []).append(f"{more:.2g} at {m.axis} {at}")
    if not found:
        return "Nowhere by more than 5%."
    return "\n".join([
        f"- {table}, {experiment.quantity(quantity).title}, compared with {method}: {', '.join(places)}"
        for (table, quantity, method), places in found.items()
    ])
