"""A warning of untrained leaves."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..extend import NdArray, Variable, warn_user

if TYPE_CHECKING:
    from .solver import Solver


solvers: weakref.WeakSet[Solver] = weakref.WeakSet()
"""The solvers that have parameters."""

_warned: weakref.WeakSet[NdArray] = weakref.WeakSet()
_MOST_NAMED = 8


def warn_of_untrained(where: str, leaves: Iterable[Variable]) -> None:
    """Warn once of each leaf that the loss depends on and no solver trains."""
    trained = {id(p.cell) for solver in solvers for p in solver._variables}
    left = {id(x.cell): x for x in leaves if id(x.cell) not in trained and x.cell not in _warned}
    if not left:
        return
    _warned.update([x.cell for x in left.values()])
    named = [f"{x.name!r}, {x.spec}" if x.name else f"one without a name, {x.spec}" for x in left.values()]
    more = f"; and {len(named) - _MOST_NAMED} more" * (len(named) > _MOST_NAMED)
    shown = "; ".join(named[:_MOST_NAMED])
    warn_user(
        f"{where}: the loss depends on leaves with need_grad that no solver trains: {shown}{more}. Pass them to the "
        "solver (get_parameters() of a Module finds only Modules and leaves that are its attributes, or in lists, "
        "tuples and dicts of these), or set their need_grad to False"
    )
