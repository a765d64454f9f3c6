"""The facts about other libraries, which are in the files beside this one.

`nnabla.csv` has a line for each public name of nnabla 1.39: its module, itself, where it is here and a note. Where it
is here is an expression such as `nn.timing`; '=' stands for the same name in the same room (as `nnabla.functions.tanh`
is `F.tanh`), and nothing for not being here, about which the note says why.

`derivatives.csv` has a line for each function that another library has as well. In the column of a library is the name
that it has there, and `:1` behind it if its gradient cannot be differentiated again, `:0` if it has none.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import nngrad

from ... import communicators
from ...training import sequences

PEERS = ("nnabla", "chainer", "pytorch", "jax")
"""The libraries, as the columns of `derivatives.csv` are called."""

_ROOTS: dict[str, Any] = {
    "nn": nngrad,
    "F": nngrad.functions,
    "PF": nngrad.parametric_functions,
    "S": nngrad.solvers,
    "I": nngrad.initializer,
    "C": communicators,
    "nngrad.communicators": communicators,
    "nngrad.training.sequences": sequences,
}
"""What the expressions begin with."""

_ROOMS = {
    "nnabla": "nn",
    "nnabla.functions": "F",
    "nnabla.parametric_functions": "PF",
    "nnabla.solvers": "S",
    "nnabla.solvers.Solver": "S.Solver",
    "nnabla.initializer": "I",
    "nnabla.communicators": "C",
    "nnabla.function.Function": "nn.Function",
}
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
    for line in lines_of("nnabla.csv"):
        module, name, here, note = line["module"], line["name"], line["here"], line["note"]
        if here == "=":
            room = _ROOMS.get(module, module.replace("nnabla.", "nn.", 1))
            here = f"{room}.{name}"
            if not resolve(here):
                here, note = "", note or "not there yet"
        places.append(Place(module, name, here, note))
    return tuple(places)


def resolve(expression: str) -> bool:
    """Whether there is what an expression such as 'nn.Variable.visit' means."""
    root = next((r for r in _ROOTS if expression == r or expression.startswith(f"{r}.")), None)
    if root is None:
        return False
    found = _ROOTS[root]
    for name in expression[len(root) + 1 :].split("."):
        if name and not hasattr(found, name):
            return False
        found = getattr(found, name) if name else found
    return True


@functools.cache
def _derivatives() -> dict[str, dict[str, str]]:
    return {line["function"]: line for line in lines_of("derivatives.csv")}


def peers_of(function: str) -> dict[str, str]:
    """What the libraries have in place of a function of F: for each its name there, and ':1' or ':0' behind it where it
    cannot be differentiated twice; empty where there is none."""
    line = _derivatives().get(function, {})
    return {peer: line.get(peer, "") for peer in PEERS}


def capability(entry: str) -> str:
    """What a library can do for a function, by its entry: 'yes' for gradients of gradients, 'once', 'no', or '' where
    it has no such function."""
    _, _, limit = entry.partition(":")
    return {"": "yes", "1": "once", "0": "no"}[limit] if entry else ""
