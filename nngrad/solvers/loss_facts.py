"""Extra arguments for optax transformations that need the loss (line searches, plateaus), and a warning of untrained
leaves."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import optax

from ..extend import NdArray, Variable, warn_user
from .gradients import Arrays

if TYPE_CHECKING:
    from .solver import Solver


class Loss(NamedTuple):
    """A loss that a training step has computed."""

    value: Any
    value_fn: Callable[[Arrays], Any]
    """Computes the loss for other parameters, with nngrad's gradients for JAX's transformations."""
    direction: Arrays | None = None
    """The directions subtracted from the parameters, for a solver that takes residuals."""

    def facts(self, grads: Arrays) -> dict[str, Any]:
        """The extra arguments for optax's and nngrad's transformations; `grads` are the gradients of the loss."""
        facts = {"value": self.value, "grad": grads, "value_fn": self.value_fn}
        return facts if self.direction is None else {**facts, "direction": self.direction}


def transformed(
    tx: optax.GradientTransformation, grads: Arrays, state: Any, params: Arrays, facts: dict[str, Any]
) -> tuple[Any, Any]:
    """Apply a transformation: returns the updates of the parameters, and the new state.

    Raises:
        TypeError: The transformation needs an argument that is not among the facts.
    """
    if not isinstance(tx, optax.GradientTransformationExtraArgs):
        facts = {}
    try:
        updates, new = tx.update(grads, state, params, **facts)
    except TypeError as error:
        missing = re.search(r"required keyword-only arguments?: (.*)", str(error))
        if missing is None:
            raise
        asked = missing[1]
        there = f"passes only {', '.join(facts)}" if facts else (
            "passes only gradients; nn.train_step passes value, grad and value_fn")
        raise TypeError(f"the optax transformation requires {asked}, but this update {there}") from error
    return updates, new


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
