"""Facts about other libraries: where nnabla's and Chainer's names are here, how often each function can be
differentiated where, and what becomes of JAX's primitives.

nnabla's names are in a table of nngrad's own (`nngrad/nnabla/names.py`), which leads on from those that are not here.
"""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import nngrad
from nngrad.graph.jaxpr import CALL_OF_OBJECT, CALLS, CUSTOM_RULES
from nngrad.jax.primitives import COMPLEX, CONTROL, POINTWISE, RULES
from nngrad.nnabla import backward_functions, communicators, ext_utils, function, logger, monitor, solver, utils
from nngrad.nnabla.names import names_of_nnabla, peers
from nngrad.training import sequences

_ROOTS: dict[str, Any] = {
    "nn": nngrad,
    "nngrad.functions": nngrad.functions,
    "F": nngrad.functions,
    "PF": nngrad.parametric_functions,
    "S": nngrad.solvers,
    "I": nngrad.initializer,
    "C": communicators,
    "nngrad.nnabla.backward_functions": backward_functions,
    "nngrad.nnabla.communicators": communicators,
    "nngrad.nnabla.ext_utils": ext_utils,
    "nngrad.nnabla.function": function,
    "nngrad.nnabla.logger": logger,
    "nngrad.nnabla.monitor": monitor,
    "nngrad.nnabla.solver": solver,
    "nngrad.training.sequences": sequences,
    "nngrad.nnabla.utils": utils,
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
    "nnabla.ext_utils": "nngrad.nnabla.ext_utils",
    "nnabla.monitor": "nngrad.nnabla.monitor",
    "nnabla.utils": "nngrad.nnabla.utils",
    "nnabla.function": "nngrad.nnabla.function",
    "nnabla.backward_functions": "nngrad.nnabla.backward_functions",
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
    root = next((r for r in _ROOTS if expression == r or expression.startswith(f"{r}.")), None)
    if root is None:
        return False
    found = _ROOTS[root]
    for name in expression[len(root) + 1 :].split("."):
        if name and not hasattr(found, name):
            return False
        found = getattr(found, name) if name else found
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


# ---------------------------------------------------------------- JAX

STATES = {
    "opened": "by a rule; parameters or dtypes that the rule does not take stay opaque",
    "computed": "during tracing, since it depends on no argument",
    "opaque": "to nngrad: it stays a JAX function, with JAX's derivatives",
    "refused": "with an error, since it works on something that is not an array",
}


class Primitive(NamedTuple):
    """A primitive, and what becomes of it."""

    name: str
    state: str
    versions: tuple[str, ...]
    """The versions of JAX that have it."""


def primitives() -> list[Primitive]:
    """The table."""
    return [Primitive(p["primitive"], p["state"], tuple(p["jax"].split())) for p in lines_of("primitives.csv")]


def has_rule(name: str) -> bool:
    """Whether a primitive is opened, by its name."""
    return any([name in rules for rules in (RULES, CONTROL, COMPLEX, POINTWISE, CALLS, CUSTOM_RULES, {CALL_OF_OBJECT})])
