"""The primitives of JAX, and what becomes of each in a function that is opened.

`primitives.csv` has a line for each: its name, what becomes of it (`STATES`), and the versions of JAX that have it, of
those that the table was compared with.
"""

from __future__ import annotations

from typing import NamedTuple

from nngrad.graph.jaxpr import CALL_OF_OBJECT, CALLS, CUSTOM_RULES
from nngrad.jax.primitives import COMPLEX, CONTROL, POINTWISE, RULES

from .facts import lines_of

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
