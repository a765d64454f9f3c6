"""The loss, for transformations of optax that ask for more than gradients: line searches, plateaus."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import optax

from .gradients import Arrays


class Loss(NamedTuple):
    """A loss that a training step has computed."""

    value: Any
    value_fn: Callable[[Arrays], Any]
    """Gives it for other parameters, with nngrad's gradients for JAX's transformations."""
    direction: Arrays | None = None
    """What the parameters move against, for a solver that takes residuals."""

    def facts(self, grads: Arrays) -> dict[str, Any]:
        """The extra arguments that transformations ask for, optax's own and nngrad's; `grads` are the loss's own."""
        facts = {"value": self.value, "grad": grads, "value_fn": self.value_fn}
        return facts if self.direction is None else {**facts, "direction": self.direction}


def transformed(
    tx: optax.GradientTransformation, grads: Arrays, state: Any, params: Arrays, facts: dict[str, Any]
) -> tuple[Any, Any]:
    """The updates of parameters, and the new state.

    Raises:
        TypeError: The transformation asks for an argument that is not among the facts.
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
        there = f"gives it {', '.join(facts)} and no others" if facts else (
            "knows gradients alone; nn.train_step gives it value, grad and value_fn")
        raise TypeError(f"the optax transformation asks for {asked}, and this update {there}") from error
    return updates, new
