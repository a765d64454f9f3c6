"""The list of rewriting rules, and which of them look at an op.

A rule that is a function of its own is entered by the `rule` decorator. Products and sums are brought to their form in
one pass, in which several rules take part: those are `declared`, the pass is entered by `form`, and it asks whether a
rule is off only where it would fire. So rules that are switched off cost those that are on nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..graph import Op, Variable
from ..graph.tables import aligned

if TYPE_CHECKING:
    from .builder import HashConsTable

Number = int | float | Fraction
"""A number that multiplies a Variable."""
Inputs = tuple[Variable, ...]
Arguments = tuple[Any, ...]
Form = Callable[["HashConsTable", Op, Inputs, Arguments], "Variable | None"]
"""Given an op that is to be applied, what has the same value and costs less; None to have the op applied as it is."""
Concern = tuple[Op, ...] | Callable[[Op], bool]
"""The ops that a rule looks at: those, or all for which the function is true; the first line of its docstring says
which they are."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rewriting rule."""

    name: str
    concern: Concern
    formula: str
    """What it replaces by what, in one line."""

    @property
    def ops(self) -> str:
        """The ops that it looks at, in words."""
        if isinstance(self.concern, tuple):
            return ", ".join([op.name for op in self.concern])
        return first_line(self.concern)


RULES: dict[str, Rule] = {}
"""Every rule by its name. Where several look at one op they have their turns in this order."""

_forms: list[tuple[str, Concern, Form]] = []
"""The functions that rewrite, each with the rule without which it is not called (nothing for a pass of several), and
the ops that it is called for."""


def declared(name: str, concern: Concern, formula: str) -> str:
    """Enter a rule into the list, and return its name."""
    if name in RULES:
        raise ValueError(f"there are two rules named {name!r}")
    RULES[name] = Rule(name, concern, formula)
    return name


def rule(name: str, *ops: Op, every: Callable[[Op], bool] | None = None) -> Callable[[Form], Form]:
    """Enter the decorated function as a rule; its formula is the first line of its docstring.

    Args:
        name: The rule's name.
        ops: The ops that it looks at.
        every: In place of them, what tells whether it looks at an op.
    """

    def enter(function: Form) -> Form:
        concern = every or ops
        _forms.append((declared(name, concern, first_line(function)), concern, function))
        return function

    return enter


def form(*ops: Op) -> Callable[[Form], Form]:
    """Enter the decorated function as a pass of several rules, which looks at `ops`."""

    def enter(function: Form) -> Form:
        _forms.append(("", ops, function))
        return function

    return enter


def first_line(function: Callable[..., Any]) -> str:
    """Returns the first line of a docstring."""
    return (function.__doc__ or "").strip().partition("\n")[0]


class Forms(dict[Op, tuple[Form, ...]]):
    """The functions that rewrite each op, where some rules are switched off; found when the op is first met."""

    def __init__(self, off: frozenset[str]) -> None:
        super().__init__()
        self.off = off

    def __missing__(self, op: Op) -> tuple[Form, ...]:
        forms = tuple([
            function
            for name, concern, function in _forms
            if name not in self.off and (op in concern if isinstance(concern, tuple) else concern(op))
        ])
        if op.tables is None:  # else it goes when a user's class goes, and must not be kept
            self[op] = forms
        return forms


@lru_cache(maxsize=64)
def forms_without(off: frozenset[str]) -> Forms:
    """Returns the forms in force without the rules of these names."""
    return Forms(off)


def show_rewrites() -> None:
    """Print every rewriting rule: its name, what it does, and the ops that it looks at."""
    rows = [(each.name, each.formula, each.ops) for each in RULES.values()]
    print("\n".join(aligned(rows)))
