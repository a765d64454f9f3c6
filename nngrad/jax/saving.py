"""Policies of `jax.checkpoint`: which intermediate values are kept for gradients."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax.extend.core import Jaxpr

from ..graph import Variable
from ..graph.jaxpr import CALLS, CUSTOM_RULES, bodies_of, equations_in, name_of, parameters_of
from .primitives.registry import CONTROL
from .values import ComplexPair, Delayed, Value, is_complex, is_held


class Saving:
    """Collects the values that a policy saves.

    Args:
        policy: One of `jax.checkpoint_policies`, or a function like them; None saves nothing.
    """

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self.saved: list[Variable] = []

    def take(self, equation: Any, results: Sequence[Value]) -> None:
        """Keep the results of an equation if the policy saves them. As in JAX, equations that hold jaxprs are not
        asked. Values to be offloaded to the host are recomputed instead, which takes no device memory either."""
        if _is_saved(equation, self._policy):
            self.saved += [y for y in results if isinstance(y, Variable)]


def _is_saved(equation: Any, policy: Any) -> bool:
    name = name_of(equation)
    if policy is None or name in CALLS or name in CONTROL or name in CUSTOM_RULES:
        return False
    said = policy(equation.primitive, *[v.aval for v in equation.invars], **equation.params)
    return said is True or type(said).__name__ == "SaveableType"


class Run(NamedTuple):
    """Consecutive equations of a checkpoint."""

    equations: tuple[Any, ...]
    is_apart: bool
    """Whether it is one loop or branch in which the policy saves something; else it is a checkpoint."""


def runs_of(jaxpr: Jaxpr, policy: Any) -> list[Run]:
    """The equations of a checkpoint in runs: each loop of known length and each branch in which the policy saves
    something is a run by itself. One run if anything but real arrays passes between runs."""
    runs = [
        Run(tuple(equations), apart) for (apart, _), equations in itertools.groupby(
            jaxpr.eqns, lambda each: (True, id(each)) if _saves_within(each, policy) else (False, 0)
        )
    ]  # fmt: skip
    handed_on = [v for run in runs if run.is_apart for each in run.equations for v in each.invars]
    made = [v for each in jaxpr.eqns for v in each.outvars]
    if any([not is_held(v.aval) or is_complex(v.aval) for v in (*handed_on, *made)]):
        return [Run(tuple(jaxpr.eqns), False)]
    return runs


def _saves_within(equation: Any, policy: Any) -> bool:
    if name_of(equation) not in ("scan", "cond"):
        return False
    return any([_is_saved(inner, policy) for body in bodies_of(equation) for inner in equations_in(body)])


def stays_checkpoint(equation: Any, given: Sequence[Value]) -> bool:
    """Whether a call of `jax.checkpoint` is one in the graph too. It is not if everything is saved, if JAX has already
    differentiated it, or if it takes or returns complex numbers."""
    parameters = parameters_of(equation)
    if name_of(equation) != "remat2" or parameters.get("differentiated", False):
        return False
    if parameters["policy"] is jax.checkpoint_policies.everything_saveable:
        return False
    held = all([is_held(v.aval) and not is_complex(v.aval) for v in (*equation.invars, *equation.outvars)])
    return held and not any([isinstance(v, Delayed | ComplexPair) for v in given])
