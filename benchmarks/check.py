"""What is measured again, beside what is kept.

`python -m benchmarks --check`: the first lines of RESULTS.md and those of the README. `--counts`: what the compiler
counts of nngrad's ways, in all benchmarks or some, whatever else the machine does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import jax

from .harness import COUNTED, Account, Case, Row, Step, Way, forget, measured_case, module_of, text_of, title
from .report import KEPT, SECTIONS, load, rows_of

TABLES = 5
"""So many of the first tables of RESULTS.md."""
SLOWER = 1.1
"""How many times a kept ratio, or count, may be exceeded before that is said."""
Key = tuple[str, str, str]
"""What a row compares: the computation and the names of both ways, without their figures."""


UNITS = {"MB": 1e6, "Mflop": 1e6}
"""Of the figures that are counted."""


class Line(NamedTuple):
    """A comparison with its kept ratio, and the ratio now."""

    row: Row
    kept: float

    @property
    def worse(self) -> bool:
        return self.row.ratio > SLOWER * self.kept


def chosen() -> dict[str, dict[Key, float]]:
    """Kept ratios by benchmark: those that the first tables and the README show."""
    ratios: dict[str, dict[Key, float]] = {}
    for i, lines in enumerate(SECTIONS.values()):
        for line in lines:
            if i < TABLES or line.in_readme:
                of_part = ratios.setdefault(line.benchmark, {})
                of_part |= {key_of(row): row["ratio"] for row in rows_of(line)}
    return ratios


def again(smoke: bool = False) -> Iterable[Line]:
    """Each comparison, measured; a case in which one is worse is measured once more, and the better ratios count."""
    for part, ratios in chosen().items():
        for i, case in enumerate(module_of(part).cases(smoke)):
            lines = of_case(part, i, case, ratios, smoke)
            if any([line.worse for line in lines]):
                both = zip(lines, of_case(part, i, case, ratios, smoke), strict=True)
                lines = [min(pair, key=lambda line: line.row.ratio) for pair in both]
            yield from lines


def of_case(part: str, i: int, case: Case, ratios: dict[Key, float], smoke: bool) -> list[Line]:
    """The comparisons of a case; only the ways that they compare are run, and only what they measure is measured."""
    titles = {title(case.what, measure): measure for measure in case.measures}
    names = {name for what, *pair in ratios if what in titles for name in pair}
    if not names:
        return []
    fewer = case._replace(ways={name: way for name, way in case.ways.items() if name in names},
                          measures=[titles[what] for what in titles if any([what == key[0] for key in ratios])])
    rows = measured_case(part, i, fewer, smoke)
    return [Line(row, ratios[key]) for row in rows if (key := key_of(row._asdict())) in ratios]


def key_of(row: dict[str, str | float]) -> Key:
    """That of a row."""
    return (str(row["what"]), *[str(row[side]).rpartition(": ")[0] for side in ("ours", "peer")])  # type: ignore[return-value]


def check() -> int:
    """Print a line for each comparison that is worse than kept by more than a tenth; return their number."""
    lines = list(again())
    worse = [line for line in lines if line.worse]
    for row, kept in worse:
        print(f"{row.what}: {row.ours}; {row.peer}: {row.ratio:.2f}, kept {kept:.2f}")
    print(f"{len(worse)} of {len(lines)} comparisons are worse than kept by more than {SLOWER - 1:.0%}")
    return len(worse)


class Count(NamedTuple):
    """A figure of the compiler's, as it was kept and now."""

    what: str
    way: str
    kept: float
    now: float

    @property
    def worse(self) -> bool:
        return self.now > SLOWER * self.kept


def kept_counts(part: str) -> dict[tuple[str, str], float]:
    """Those of nngrad's ways, by the title of the row and the way."""
    found: dict[tuple[str, str], float] = {}
    for row in load(part)["rows"] if (KEPT / f"{part}.json").exists() else []:
        if row["what"].endswith(tuple([title("", measure) for measure in COUNTED])):
            way, _, text = row["ours"].rpartition(": ")
            number, unit = text.split()
            found[row["what"], way] = float(number) * UNITS[unit]
    return found


def counted_again(parts: Iterable[str], smoke: bool = False) -> Iterable[Count]:
    """Each of these figures, by programs that are compiled but not timed."""
    for part in parts:
        kept = kept_counts(part)
        for case in module_of(part).cases(smoke) if kept else ():
            for name, way in case.ways.items():
                told = [m for m in COUNTED if (title(case.what, m), name) in kept]
                if told:
                    now = account_of_way(case, way)
                    yield from [Count(title(case.what, m), name, kept[title(case.what, m), name], now[m]) for m in told]


def account_of_way(case: Case, way: Way) -> Account:
    """The compiler's account of a way of a case that has one."""
    forget()
    with jax.enable_x64(case.double):
        made = way()
        assert isinstance(made, Step) and made.account is not None
        return made.account()


def counts(parts: Iterable[str]) -> int:
    """Print a line for each figure that is worse than kept by more than a tenth; return their number."""
    found = list(counted_again(parts))
    worse = [count for count in found if count.worse]
    for what, way, *figures in worse:
        kept, now = [text_of(what.rpartition(": ")[2], figure) for figure in figures]
        print(f"{what}: {way}: {now}, kept {kept}")
    print(f"{len(worse)} of {len(found)} counts are worse than kept by more than {SLOWER - 1:.0%}")
    return len(worse)
