"""Facts about other libraries: where nnabla's and Chainer's names are here, and how often each function can be
differentiated where.

nnabla's names are in a table of nngrad's own (`nngrad/nnabla/names.py`), which leads on from those that are not here.
"""

from __future__ import annotations

import csv
import functools
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nngrad.nnabla.names import names_of_nnabla, peers

_ROOTS = {
    "nn": "nngrad", "nngrad": "nngrad", "F": "nngrad.functions", "PF": "nngrad.parametric_functions",
    "S": "nngrad.solvers", "I": "nngrad.initializer", "C": "nngrad.nnabla.communicators",
}  # fmt: skip
"""What the expressions begin with."""

_ROOMS = {
    "nnabla": "nn", "nnabla.functions": "F", "nnabla.parametric_functions": "PF", "nnabla.solvers": "S",
    "nnabla.solvers.Solver": "S.Solver", "nnabla.initializer": "I", "nnabla.communicators": "C",
    "nnabla.function.Function": "nn.Function",
    **{f"nnabla.{name}": f"nngrad.nnabla.{name}" for name in (
        "backward_functions", "ext_utils", "function", "monitor", "utils",
    )},
}  # fmt: skip
"""Where '=' leads to, by modules of nnabla; `nnabla.X` leads to `nn.X`."""


class Place(NamedTuple):
    """A public name of nnabla, and where it is here."""

    module: str
    name: str
    here: str
    """An expression; empty if it is not here."""
    note: str


def lines_of(name: str) -> Iterator[dict[str, str]]:
    """The lines of a table."""
    with (Path(__file__).parent / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


@functools.cache
def nnabla_names() -> tuple[Place, ...]:
    """All public names of nnabla; those that are marked '=' and are not there yet have no place, and a note says so."""
    places = []
    for (module, name), line in names_of_nnabla().items():
        here, note = line["here"], line["note"]
        if here == "=":
            here = f"{room_of(module)}.{name}"
            if not resolve(here):
                here, note = "", note or "not there yet"
        places.append(Place(module, name, here, note))
    return tuple(places)


def room_of(module: str) -> str:
    """Where the names of a module of nnabla are here, if they are alike."""
    return _ROOMS.get(module, module.replace("nnabla.", "nn.", 1))


def resolve(expression: str) -> bool:
    """Whether there is what an expression such as 'nn.Variable.visit' means."""
    first, *names = expression.split(".")
    try:
        pkgutil.resolve_name(".".join([_ROOTS[first], *names]))
    except (KeyError, ImportError, AttributeError):
        return False
    return True


# ---------------------------------------------------------------- Chainer

_NAME = re.compile(r"\b(?:F|nn)\.\w+")


class ChainerFunction(NamedTuple):
    """A function of `chainer.functions`, and where it is here."""

    section: str
    """The part of Chainer's reference that it is in."""
    name: str
    here: str
    """An expression; empty if it is not here."""
    differs: str
    """What is different, or why it is not here."""


def chainer_functions() -> list[ChainerFunction]:
    """All functions of Chainer 7.8.1. In the file, one without a place is here by its own name, unless its note says
    that it is not here; one whose place is not there yet has none."""
    functions = []
    for line in lines_of("chainer.csv"):
        name, here, differs = line["function"], line["here"], line["differs"]
        if not differs.startswith("not here"):
            here = here or f"F.{name}"
            if not is_there(here):
                here, differs = "", "not here yet"
        functions.append(ChainerFunction(line["section"], name, here, differs))
    return functions


def is_there(expression: str) -> bool:
    """Whether all names of `F` and `nn` in an expression are those of something."""
    return all([resolve(name) for name in _NAME.findall(expression)])


# ---------------------------------------------------------------- how often others can differentiate

PEERS = {"nnabla": "nnabla", "chainer": "Chainer", "pytorch": "PyTorch", "jax": "JAX"}
"""The libraries: the columns of the table, and their names."""


def peers_of(function: str) -> dict[str, str]:
    """The entry of each library for a function of F; empty where the library has no such function."""
    line = peers().get(function, {})
    return {peer: line.get(peer, "") for peer in PEERS}


def capability(entry: str) -> str:
    """What a library can do for a function, by its entry: 'yes' for gradients of gradients, 'once', 'no', or '' where
    it has no such function."""
    _, _, limit = entry.partition(":")
    return {"": "yes", "1": "once", "0": "no"}[limit] if entry else ""
