"""What becomes of each primitive of JAX in a function that is opened: `primitives.csv` has a line for each, with its
name, what becomes of it, and the versions of JAX that have it, of those that it was compared with.

One is *opened* by a rule, *computed* during tracing since it depends on no argument, *refused* since it works on
something that is no array, or *opaque*: it stays a JAX function, with JAX's derivatives.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

from nngrad.graph.jaxpr import CALL_OF_OBJECT, CALLS, CUSTOM_RULES
from nngrad.jax.primitives import COMPLEX, CONTROL, POINTWISE, RULES


class Primitive(NamedTuple):
    """A primitive, and what becomes of it."""

    name: str
    state: str
    versions: tuple[str, ...]
    """The versions of JAX that have it."""


def primitives() -> list[Primitive]:
    """The table."""
    with Path(__file__).with_name("primitives.csv").open(encoding="utf-8", newline="") as file:
        return [Primitive(p["primitive"], p["state"], tuple(p["jax"].split())) for p in csv.DictReader(file)]


def has_rule(name: str) -> bool:
    """Whether a primitive is opened, by its name."""
    return any([name in rules for rules in (RULES, CONTROL, COMPLEX, POINTWISE, CALLS, CUSTOM_RULES, {CALL_OF_OBJECT})])
