"""Parts of pages that are made of facts about other libraries: `python -m docs_site.peers` in a checkout writes them.

nnabla's names, and what each function is called elsewhere, are in tables of nngrad's own (`nngrad/nnabla/names.py`).
chainer.csv has the functions of Chainer 7.8.1, pytorch.csv those of F with other values than PyTorch's of that name.
"""

from __future__ import annotations

import csv
import itertools
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import nngrad.functions as F
from backward_registry import registry
from docs_site import DOCS
from docs_site.names import functions_of_family
from nngrad.extend import Op
from nngrad.nnabla.names import names_of_nnabla, peers

_ROOMS = {
    "nnabla": "nn", "nnabla.functions": "F", "nnabla.parametric_functions": "PF", "nnabla.solvers": "S",
    "nnabla.solvers.Solver": "S.Solver", "nnabla.initializer": "I", "nnabla.communicators": "C",
    "nnabla.function.Function": "nn.Function",
    **{f"nnabla.{name}": f"nngrad.nnabla.{name}" for name in (
        "backward_functions", "ext_utils", "function", "monitor", "utils",
    )},
}  # fmt: skip
"""Where '=' leads to, by modules of nnabla; `nnabla.X` leads to `nn.X`."""

PEERS = {"nnabla": "nnabla", "chainer": "Chainer", "pytorch": "PyTorch", "jax": "JAX"}
"""The libraries with columns in peers.csv, and their names."""


class Elsewhere(NamedTuple):
    """A public name of another library, and where it is here."""

    section: str
    """The module that it is in; for Chainer, the part of its reference."""
    name: str
    here: str
    """An expression; empty if it is not here."""
    note: str
    """What is different, or why it is not here."""


def lines_of(name: str) -> Iterator[dict[str, str]]:
    """The lines of a table."""
    with Path(__file__).with_name(name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def nnabla_names() -> list[Elsewhere]:
    """All public names of nnabla."""
    return [
        Elsewhere(module, name, f"{_room_of(module)}.{name}" if line["here"] == "=" else line["here"], line["note"])
        for (module, name), line in names_of_nnabla().items()
    ]


def chainer_functions() -> list[Elsewhere]:
    """All functions of Chainer. In the file, one without a place is here by its own name, unless its note says that it
    is not here."""
    return [
        Elsewhere(section, name, here if here or note.startswith("not here") else f"F.{name}", note)
        for section, name, here, note in map(dict.values, lines_of("chainer.csv"))
    ]


def _room_of(module: str) -> str:
    return _ROOMS.get(module, module.replace("nnabla.", "nn.", 1))


def capability(entry: str) -> str:
    """What a library can do for a function, by its entry: 'yes' for gradients of gradients, 'once', 'no', or '' where
    it has no such function."""
    _, _, limit = entry.partition(":")
    return {"": "yes", "1": "once", "0": "no"}[limit] if entry else ""


def pages() -> dict[str, str]:
    """The pages by their names in `docs/`. What is made is the rest of a page, behind a heading and its first
    paragraph."""
    chainer = _sections((f.section.capitalize(), "F", "Chainer", f) for f in chainer_functions())
    nnabla = _sections((f.section, _room_of(f.section), "nnabla", f) for f in nnabla_names())
    return {
        "from_chainer.md": _page("from_chainer.md", "## Functions", chainer),
        "from_nnabla.md": _page("from_nnabla.md", "## All names", nnabla),
        "from_pytorch.md": _page("from_pytorch.md", "## Functions with other values", _pytorch()),
        "functions.md": _page("functions.md", "## By family", _functions()),
    }


def _page(name: str, heading: str, made: str) -> str:
    before, _, after = (DOCS / name).read_text(encoding="utf-8").partition(f"\n{heading}\n")
    first, _, _ = after.partition("\n\n")
    return f"{before}\n{heading}\n{first}\n\n{made}"


def _sections(names: Iterable[tuple[str, str, str, Elsewhere]]) -> str:
    """Names with the titles of their sections, the module that has them here if they are alike, and the library:
    in each section a table of those that are not alike, those that share a note in one line, and then the others."""
    parts = []
    for (title, room, library), group in itertools.groupby(names, key=lambda line: line[:3]):
        alike, lines = [], defaultdict(list)
        for *_, (_, name, here, note) in group:
            if here == f"{room}.{name}" and not note:
                alike.append(name)
            else:
                lines[here, note].append(_code(name))
        rows = [(", ".join(names), _code(here), note) for (here, note), names in lines.items()]
        which = f"{_code(alike[0])} is" if len(alike) == 1 else f"{'The other' if rows else 'All'} {len(alike)} are"
        listed = f"{which} in `{room}` by the same name.\n" if alike else ""
        table = _table((library, "here", "what differs" if library == "Chainer" else "note"), rows) if rows else ""
        parts.append(f"### {title}\n" + table + ("\n" if listed and rows else "") + listed)
    return "\n".join(parts)


def _pytorch() -> str:
    lines = lines_of("pytorch.csv")
    rows = [[*[_code(line[n]) for n in ("pytorch", "here", "same")], line["differs"]] for line in lines]
    return _table(("PyTorch", "the same arguments here", "PyTorch's values here", "what differs"), rows)


def _functions() -> str:
    parts = []
    differentiable = []
    for family in F.FAMILIES:
        names = functions_of_family(family)
        differentiable += [name for name in names if _order(name) != "none"]
        listed = textwrap.fill(", ".join(map(_function, names)), 132, break_long_words=False, break_on_hyphens=False)
        parts.append(f"### {family.replace('_', ' ').capitalize()}\n{listed}\n")
    parts.append("## Where other libraries stop\n| library | only once | not at all |\n| --- | --- | --- |")
    for peer, title in PEERS.items():
        limits = {name: capability(peers().get(name, {}).get(peer, "")) for name in differentiable}
        cells = [", ".join([_code(n) for n, limit in limits.items() if limit == which]) for which in ("once", "no")]
        parts.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(parts) + "\n"


def _order(name: str) -> str:
    """'none' for a function without gradient, 'estimate' for one whose rule is not its derivative."""
    function = getattr(F, name)
    rule = registry.find(function) if isinstance(function, Op) else None
    return "none" if rule and rule.kind == "non-differentiable" else "estimate" if rule and not rule.exact else ""


def _function(name: str) -> str:
    """A function with how often it can be differentiated, where that is not any number of times, and other names."""
    others = {peers().get(name, {}).get(peer, "").partition(":")[0]: None for peer in PEERS}
    marks = [f"*{order}*"] if (order := _order(name)) else []
    marks += [_code(n) for n in others if n not in ("", name)]
    return _code(f"F.{name}") + (f" ({', '.join(marks)})" if marks else "")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "".join([f"| {' | '.join(line)} |\n" for line in (titles, ["---"] * len(titles), *rows)])


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(DOCS / name)
