"""Where public names of nnabla and Chainer are here.

nnabla's names are in a table of nngrad's own (`nngrad/nnabla/names.py`), which leads on from those that are not
here.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import nngrad
from nngrad.nnabla import backward_functions, communicators, ext_utils, function, logger, monitor, solver, utils
from nngrad.nnabla.names import names_of_nnabla
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
