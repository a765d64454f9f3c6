"""The kept figures (`results/*.json`) and the pages made from them: RESULTS.md, and the table of the README.

`python -m benchmarks --write` measures, keeps and makes the pages; `--pages` makes them from what is kept. Which lines
they have stands in `headlines.toml`.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import tomllib
from collections.abc import Iterable
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import jax

from nngrad_command.installation import version_of

from .harness import EARLY

ROOT = Path(__file__).parents[1]
KEPT = Path(__file__).parent / "results"
ON_GPU = KEPT / "gpu"
PAGE = Path(__file__).parent / "RESULTS.md"
README = ROOT / "README.md"
_ratio = itemgetter("ratio")
MEASURES = (": first result", ": temporaries", f": {EARLY}")
"""How titles of rows end that are not of times in turns."""
PLOTTED = ("devices",)
"""A file of figures that are drawn, and has no rows."""


class Headline(NamedTuple):
    """A line of the page: one measurement of nngrad beside one or several peers."""

    title: str
    benchmark: str
    what: str
    """The rows of the benchmark that it is made of."""
    peers: tuple[str, ...]
    """How those of the rows begin that are shown; in this order."""
    in_readme: bool = False
    ours: str = ""
    """How nngrad's side of the rows begins, where there are several."""


def _headlines() -> dict[str, list[Headline]]:
    """Those of `headlines.toml`, by section."""
    told = tomllib.loads((Path(__file__).parent / "headlines.toml").read_text(encoding="utf-8"))
    return {
        section: [
            Headline(h["title"], h["in"], h["what"], tuple(h["peers"]), h.get("readme", False), h.get("ours", ""))
            for h in lines
        ] for section, lines in told.items()
    }  # fmt: skip


class Reason(NamedTuple):
    """Why a line is above 1."""

    bound: str
    """What bounds it, and others: a row of the page."""
    told: str
    """What was measured of it."""


SECTIONS = _headlines()
OF_PEERS = re.compile(r"jax|JAX|jit|optax|nested|vmap of|zero coord|collapsed|PyTorch|torch|folx|asdex|gradients once")
"""How ways begin that are not nngrad's."""
_BOUNDS: dict[str, dict[str, str]] = tomllib.loads((Path(__file__).parent / "slower.toml").read_text(encoding="utf-8"))
REASONS = {begins: Reason(bound, told) for bound, lines in _BOUNDS.items() for begins, told in lines.items()}
"""Why lines are above 1, by the benchmark or by how the line begins."""

_HEAD = """\
# Measured

Each line compares nngrad with a peer that ran in the same process, in turns. A ratio below 1 means that nngrad takes
less. Times and ratios are medians of rounds. [README.md](README.md) says what each line measures and how to repeat it.
All {rows} rows are in [results/](results).

{machines}
"""
_ON_GPU = """
## On a GPU
{told}. Products are exact to float32
(`jax_default_matmul_precision` is `highest`). Of steps as small as these the time is mostly the host's.

"""
_GROWTH = """
## Cost as work grows
The time of a step, each beside its peers at their best. Numbers in the legends are slopes: the power of the size with
which a time grows over its last three points. For devices these are the bytes that the program of one of them accesses
by the compiler's account, where they share a batch.

![A step over width, batch, depth, order, numbers of parameters and of devices](../docs/images/growth.png)
"""
_SLOWER = """
## Where nngrad is slower
Each kept computation whose best way takes more than the best peer's, of time or memory, by what bounds it. What is
timed in turns is here if the median of its rounds' ratios is above 1 with a confidence of 95%, by the sign test: two
runs of the same program differ as well.

| what bounds it | ratio beside the best peer |
| --- | --- |
"""
_UNTOLD = """
Lines whose cause has not been measured:

| | nngrad | best peer | ratio |
| --- | --- | --- | ---: |
"""


def keep(path: Path, rows: Iterable[NamedTuple], packages: Iterable[str] = ("torch",)) -> None:
    """Keep what has been measured, with the machine, the versions of `packages` and the date."""
    lines = [json.dumps(r._asdict(), ensure_ascii=False) for r in rows]
    told, today = json.dumps(machine(packages)), json.dumps(datetime.date.today().isoformat())
    head = f' "machine": {told},\n "date": {today},\n'
    path.write_text("{\n" + head + ' "rows": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n", encoding="utf-8")


def machine(packages: Iterable[str] = ("torch",)) -> str:
    """What it ran on, with the versions of nngrad, of JAX, and of those `packages` that are there."""
    found = {name: version_of(name) for name in ("nngrad", "jax", *packages)}
    versions = [f"{name} {version}" for name, version in found.items() if version]
    device = jax.devices()[0]
    cores = f"{os.cpu_count()} {platform.machine()} cores"
    return f"{device.device_kind} ({device.platform}), {cores}, {', '.join(versions)}"


def load(name: str, folder: Path = KEPT) -> dict[str, Any]:
    """What is kept of a benchmark: `machine`, `date` and `rows`."""
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return found


def write_pages() -> None:
    """Write RESULTS.md and the table of the README."""
    PAGE.write_text(page())
    README.write_text(with_table(README.read_text()))


def page() -> str:
    """The text of RESULTS.md."""
    kept = _kept()
    machines: dict[tuple[str, str], list[str]] = {}
    for name in sorted({line.benchmark for lines in SECTIONS.values() for line in lines}):
        machines.setdefault((kept[name]["date"], kept[name]["machine"]), []).append(name)
    told = "\n".join([f"- {', '.join(ran)}: {date}, {machine}" for (date, machine), ran in sorted(machines.items())])
    text = _HEAD.format(rows=sum([len(each["rows"]) for each in kept.values()]), machines=told)
    for title, lines in SECTIONS.items():
        text += f"\n## {title}\n" + table(lines)
    return text + on_gpu() + _GROWTH + slower()


class Slower(NamedTuple):
    """A line above 1 beside the best peer."""

    what: str
    ours: str
    peer: str
    ratio: float
    reason: Reason | None
    compiled: str = ""
    """Where that peer is eager and these are first results: the ratio beside the best peer that compiles, and who."""


def all_slower() -> list[Slower]:
    """Each computation whose best way takes more than the best of the peers', to two decimals, the worst first."""
    found = []
    for name, kept in _kept().items():
        ways: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for row in kept["rows"]:
            if OF_PEERS.match(row["peer"]) and row["what"].rpartition(": ")[2] not in ("arithmetic", "tracing"):
                ways.setdefault(row["what"], {}).setdefault(row["ours"], []).append(row)
        for what, by_way in ways.items():
            rows = sorted(min(by_way.values(), key=lambda rows: max(map(_ratio, rows))), key=_ratio)
            row, others = rows[-1], [row for row in rows if not row["peer"].startswith("PyTorch eager")]
            if round(row["ratio"] if row.get("low") is None else row["low"], 2) > 1:
                begins = max([begin for begin in REASONS if what.startswith(begin)], key=len, default=name)
                compiled = ""
                if what.endswith("first result") and others and row not in others:
                    compiled = f"{others[-1]['ratio']:.2f} beside {others[-1]['peer'].rpartition(': ')[0]}"
                    begins = begins if round(others[-1]["ratio"], 2) > 1 else "PyTorch eager"
                found.append(Slower(what, row["ours"], row["peer"], row["ratio"], REASONS.get(begins), compiled))
    return sorted(found, key=lambda line: -line.ratio)


def slower() -> str:
    """The tables of what peers do with less: by what bounds it, the measures of a computation together; and what has no
    reason."""
    bounds: dict[str, dict[tuple[str, str, str], list[str]]] = {}
    untold = ""
    for line in all_slower():
        what, _, measure = line.what.rpartition(": ") if line.what.endswith(MEASURES) else (line.what, "", "")
        if line.reason is None:
            untold += f"| {line.what} | {line.ours.rpartition(': ')[2]} | {line.peer} | {line.ratio:.2f} |\n"
            continue
        computation = what, line.peer.rpartition(": ")[0], line.reason.told
        ratio = f"{measure} {line.ratio:.2f}".lstrip() + f" ({line.compiled})" * bool(line.compiled)
        bounds.setdefault(line.reason.bound, {}).setdefault(computation, []).append(ratio)
    told = ""
    for bound, of_bound in bounds.items():
        by_told: dict[str, list[str]] = {}
        for (what, peer, why), ratios in of_bound.items():
            by_told.setdefault(why, []).append(f"{what}: {', '.join(ratios)} beside {peer}")
        lines = [f"*{why}*: " * bool(why) + "; ".join(of) for why, of in by_told.items()]
        told += f"| {bound} | {'<br>'.join(lines)} |\n"
    return _SLOWER + told + f"{_UNTOLD}{untold}" * bool(untold)


def on_gpu() -> str:
    """The headlines of what was measured on a GPU."""
    kept = _kept(ON_GPU)
    told = "; ".join(sorted({f"{each['date']}, {each['machine']}" for each in kept.values()}))
    measured = {(name, row["what"]) for name, each in kept.items() for row in each["rows"]}
    lines = [line for lines in SECTIONS.values() for line in lines if (line.benchmark, line.what) in measured]
    return _ON_GPU.format(told=told) + table(lines, ON_GPU)


def everything() -> str:
    """A page with all rows that are kept."""
    text = "# All measurements\n"
    both = [(*item, where) for folder, where in ((KEPT, ""), (ON_GPU, " on a GPU")) for item in _kept(folder).items()]
    for name, kept, where in both:
        text += f"\n## {name.replace('_', ' ').capitalize()}{where}\n{kept['date']}, {kept['machine']}\n\n"
        text += "| what | nngrad | beside | ratio |\n| --- | --- | --- | ---: |\n"
        for row in kept["rows"]:
            text += f"| {row['what']} | {row['ours']} | {row['peer']} | {row['ratio']:.3f} |\n"
    return text


def _kept(folder: Path = KEPT) -> dict[str, dict[str, Any]]:
    return {path.stem: load(path.stem, folder) for path in sorted(folder.glob("*.json")) if path.stem not in PLOTTED}


def with_table(text: str) -> str:
    """The README with its table made anew."""
    begin, end = "<!-- speed: made by python -m benchmarks --pages -->\n", "<!-- end of speed -->"
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    chosen = [line for lines in SECTIONS.values() for line in lines if line.in_readme]
    return f"{head}{begin}{table(chosen)}{end}{tail}"


def table(lines: Iterable[Headline], folder: Path = KEPT) -> str:
    """A table of headlines."""
    text = "| | nngrad | beside | ratio |\n| --- | --- | --- | ---: |\n"
    for line in lines:
        rows = rows_of(line, folder)
        ours = rows[0]["ours"].rpartition(": ")[2]
        beside, ratios = "; ".join([r["peer"] for r in rows]), "; ".join([f"{r['ratio']:.2g}" for r in rows])
        text += f"| {line.title} | {ours} | {beside} | {ratios} |\n"
    return text


def rows_of(line: Headline, folder: Path = KEPT) -> list[dict[str, Any]]:
    """The kept rows that a headline shows.

    Raises:
        ValueError: One of them is not kept.
    """
    found = []
    for peer in line.peers:
        fitting = [
            row for row in load(line.benchmark, folder)["rows"]
            if row["what"] == line.what and row["peer"].startswith(peer) and row["ours"].startswith(line.ours)
        ]  # fmt: skip
        if not fitting:
            raise ValueError(f"{folder.name}/{line.benchmark}.json has no row {line.what!r} beside {peer!r}")
        found.append(fitting[0])
    return found
