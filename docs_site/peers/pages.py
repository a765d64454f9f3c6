"""The parts of pages that are made of facts: each is the rest of a page, behind a heading and its first paragraph."""

from __future__ import annotations

import itertools
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import nngrad.functions as F
from docs_site import DOCS
from nngrad.command.ops import functions_of_family, order_of_function

from .facts import (
    PEERS,
    ChainerFunction,
    Place,
    capability,
    chainer_functions,
    lines_of,
    nnabla_names,
    peers_of,
    room_of,
)

T = TypeVar("T", Place, ChainerFunction)


def pages() -> dict[str, str]:
    """The pages by their names in `docs/`: what people have written, and what is made."""
    made = {
        "from_chainer.md": ("## Functions", _chainer()),
        "from_nnabla.md": ("## All names", _nnabla()),
        "from_pytorch.md": ("## Functions with other values", _pytorch()),
        "functions.md": ("## By family", _functions()),
    }
    return {name: _page(name, *of_it) for name, of_it in made.items()}


def _page(name: str, heading: str, made: str) -> str:
    before, _, after = (DOCS / name).read_text(encoding="utf-8").partition(f"\n{heading}\n")
    first, _, _ = after.partition("\n\n")
    return f"{before}\n{heading}\n{first}\n\n{made}"


def _chainer() -> str:
    parts = []
    for section, functions in itertools.groupby(chainer_functions(), key=lambda function: function.section):
        alike, others = _parted(functions, lambda each: each.here == f"F.{each.name}" and not each.differs)
        rows = [(each.name, each.here, each.differs) for each in others]
        parts.append(_names(section.capitalize(), "F", alike, ("Chainer", "here", "what differs"), rows))
    return "\n".join(parts)


def _nnabla() -> str:
    parts = []
    for module, places in itertools.groupby(nnabla_names(), key=lambda place: place.module):
        room = room_of(module)
        alike, others = _parted(places, lambda p, room=room: p.here == f"{room}.{p.name}" and not p.note)
        rows = [(place.name, place.here, place.note) for place in others]
        parts.append(_names(module, room, alike, ("nnabla", "here", "note"), rows))
    return "\n".join(parts)


def _pytorch() -> str:
    columns = "pytorch", "here", "same"
    rows = [[*[_code(line[column]) for column in columns], line["differs"]] for line in lines_of("pytorch.csv")]
    return _table(("PyTorch", "the same arguments here", "PyTorch's values here", "what differs"), rows)


def _functions() -> str:
    parts = []
    differentiable = []
    for family in F.FAMILIES:
        names = functions_of_family(family)
        differentiable += [name for name in names if order_of_function(name) != "none"]
        title = family.replace("_", " ").capitalize()
        parts.append(f"### {title}\n{_filled(', '.join([_function(name) for name in names]))}\n")
    parts.append("## Where other libraries stop\n| library | only once | not at all |\n| --- | --- | --- |")
    for peer, title in PEERS.items():
        limits = {name: capability(peers_of(name)[peer]) for name in differentiable}
        cells = [", ".join([_code(n) for n, limit in limits.items() if limit == which]) for which in ("once", "no")]
        parts.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(parts) + "\n"


def _function(name: str) -> str:
    """A function with how often it can be differentiated, where that is not any number of times, and other names."""
    orders = order_of_function(name)
    there = [entry.partition(":")[0] for entry in peers_of(name).values()]
    others = [_code(n) for n in dict.fromkeys(there) if n not in ("", name)]
    marks = ([f"*{orders}*"] if orders in ("estimate", "none") else []) + others
    return _code(f"F.{name}") + (f" ({', '.join(marks)})" if marks else "")


def _parted(things: Iterable[T], is_alike: Callable[[T], bool]) -> tuple[list[str], list[T]]:
    """The names of those that are alike here, and the others."""
    listed = list(things)
    return [each.name for each in listed if is_alike(each)], [each for each in listed if not is_alike(each)]


def _names(title: str, room: str, alike: Sequence[str], titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A section: names that are alike here, and a table of the others, those that share a note in one line."""
    lines = defaultdict(list)
    for name, here, note in rows:
        lines[here, note].append(_code(name))
    rows = [(", ".join(names), _code(here), note) for (here, note), names in lines.items()]
    which = f"{'The other' if rows else 'All'} {len(alike)} are" if len(alike) > 1 else f"{_code(''.join(alike))} is"
    listed = f"{which} in `{room}` by the same name.\n" if alike else ""
    return f"### {title}\n" + (_table(titles, rows) if rows else "") + ("\n" if listed and rows else "") + listed


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _filled(text: str) -> str:
    return textwrap.fill(text, 132, break_long_words=False, break_on_hyphens=False,
                         subsequent_indent="  " if text.startswith("- ") else "")


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join([f"| {' | '.join(line)} |\n" for line in lines])
