"""`python -m benchmarks --check`: the first lines of RESULTS.md and those of the README again, beside what is kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .harness import Row, measured_case, module_of
from .report import SECTIONS, load

TABLES = 5
"""So many of the first tables of RESULTS.md."""
SLOWER = 1.1
"""How many times a kept ratio may be exceeded before that is said."""


class Line(NamedTuple):
    """A comparison with its kept ratio, and the ratio now."""

    row: Row
    kept: float

    @property
    def worse(self) -> bool:
        return self.row.ratio > SLOWER * self.kept


def chosen() -> dict[str, set[str]]:
    """Names of rows by benchmark: those of the first tables, and of the README."""
    names: dict[str, set[str]] = {}
    for i, lines in enumerate(SECTIONS.values()):
        for line in lines:
            if i < TABLES or line.in_readme:
                names.setdefault(line.benchmark, set()).add(line.what)
    return names


def again(smoke: bool = False) -> Iterable[Line]:
    """Each case that has one of these rows is measured; the ways of a case are timed in turns, in one process."""
    for part, whats in chosen().items():
        kept = {key_of(row): row["ratio"] for row in load(part)["rows"]}
        for i, case in enumerate(module_of(part).cases(smoke)):
            if whats & {case.what, *[f"{case.what}: {measure}" for measure in case.measures]}:
                for row in measured_case(part, i, case, smoke)[0]:
                    if (ratio := kept.get(key_of(row._asdict()))) is not None:
                        yield Line(row, ratio)


def key_of(row: dict[str, str | float]) -> tuple[str, str, str]:
    """What a row compares: the computation and the names of both ways, without their figures."""
    return (str(row["what"]), *[str(row[side]).rpartition(": ")[0] for side in ("ours", "peer")])  # type: ignore[return-value]


def check() -> int:
    """Print a line for each comparison that is worse than kept by more than a tenth; return their number."""
    lines = list(again())
    worse = [line for line in lines if line.worse]
    for row, kept in worse:
        print(f"{row.what}: {row.ours}; {row.peer}: {row.ratio:.2f}, kept {kept:.2f}")
    print(f"{len(worse)} of {len(lines)} comparisons are worse than kept by more than {SLOWER - 1:.0%}")
    return len(worse)
