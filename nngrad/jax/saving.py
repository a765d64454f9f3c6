"""Policies of `jax.checkpoint`: which values in it are kept for gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from ..graph import Variable
from ..graph.jaxpr import CALLS, CUSTOM_RULES, name_of, parameters_of
from .primitives.registry import CONTROL
from .values import ComplexPair, Delayed, Value, is_complex, is_held


class Saving:
    """The values that a policy saves.

    Args:
        policy: One of `jax.checkpoint_policies`, or a function like them; None saves nothing.
    """

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self.saved: list[Variable] = []

    def take(self, equation: Any, results: Sequence[Value]) -> None:
        """Keep what an equation gives, if the policy saves it. As in JAX it is not asked of what holds equations.
        What it would move to the host's memory is computed again: that takes no memory of the device either."""
        name = name_of(equation)
        if self._policy is None or name in CALLS or name in CONTROL or name in CUSTOM_RULES:
            return
        said = self._policy(equation.primitive, *[v.aval for v in equation.invars], **equation.params)
        if said is True or type(said).__name__ == "SaveableType":
            self.saved += [y for y in results if isinstance(y, Variable)]


def stays_checkpoint(equation: Any, given: Sequence[Value]) -> bool:
    """Whether a call is of `jax.checkpoint`, and is one in the graph too. Not so where everything is saved, where JAX
    has differentiated it, and where complex numbers go in or out."""
    parameters = parameters_of(equation)
    if name_of(equation) != "remat2" or parameters.get("differentiated", False):
        return False
    if parameters["policy"] is jax.checkpoint_policies.everything_saveable:
        return False
    held = all([is_held(v.aval) and not is_complex(v.aval) for v in (*equation.invars, *equation.outvars)])
    return held and not any([isinstance(v, Delayed | ComplexPair) for v in given])
