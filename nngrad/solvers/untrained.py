"""Leaves with `need_grad` that a loss depends on and no solver trains: a warning names them, once."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..graph import NdArray, Variable
from ..graph.source_location import warn_user

if TYPE_CHECKING:
    from .solver import Solver

solvers: weakref.WeakSet[Solver] = weakref.WeakSet()
"""Those that have parameters."""

_told: weakref.WeakSet[NdArray] = weakref.WeakSet()
_MOST_NAMED = 8


def tell_of_untrained(where: str, leaves: Iterable[Variable]) -> None:
    """Warn of those of the leaves, on which a loss depends, that no solver has, and that were not named before."""
    trained = {id(p.cell) for solver in solvers for p in solver._variables}
    left = {id(x.cell): x for x in leaves if id(x.cell) not in trained and x.cell not in _told}
    if not left:
        return
    _told.update([x.cell for x in left.values()])
    named = [f"{x.name!r}, {x.spec}" if x.name else f"one without a name, {x.spec}" for x in left.values()]
    more = f"; and {len(named) - _MOST_NAMED} more" * (len(named) > _MOST_NAMED)
    shown = "; ".join(named[:_MOST_NAMED])
    warn_user(
        f"{where}: the loss depends on leaves with need_grad that no solver trains: {shown}{more}. Give them to the "
        "solver (get_parameters() of a Module finds Modules and leaves that are its attributes, or in lists, tuples "
        "and dicts of these, and no others), or set their need_grad to False"
    )
