"""Policies of recomputation, fit for JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

from ...autodiff.remat import LeastMemory, MemoryBudget, Segments
from ...autodiff.remat.policies import Policy
from .static_arguments import CannotBeKept

_KEPT = {kind.__name__: kind for kind in (LeastMemory, MemoryBudget, Segments)}


def written_policy(policy: Policy) -> list[Any]:
    """A policy: its name and its settings.

    Raises:
        CannotBeKept: It is made of a predicate or of Variables.
    """
    name = type(policy).__name__
    if _KEPT.get(name) is not type(policy):
        raise CannotBeKept("gradients with recompute= as a predicate or a list of Variables")
    return [name, dataclasses.asdict(policy)]


def read_policy(given: Any) -> Policy:
    """The policy that `written_policy` has made this of.

    Raises:
        ValueError: There is no such policy.
    """
    name, settings = given
    if name not in _KEPT:
        raise ValueError(f"a policy is called {name!r:.40}")
    found: Policy = _KEPT[name](**settings)
    return found
