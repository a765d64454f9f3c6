"""The list of rewriting rules, and which ops each applies to.

The `rule` decorator enters a rule that is a function of its own. Products and sums are brought to canonical form in one
pass that combines several rules: those are `declared`, `form` enters the pass, and it checks whether a rule is off only
where that would fire. So rules that are off slow down nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..graph import Op, Variable
from ..graph.shown import aligned

if TYPE_CHECKING:
    from .builder import HashConsTable

Number = int | float | Fraction
"""A number that multiplies a Variable."""
Inputs = tuple[Variable, ...]
Arguments = tuple[Any, ...]
Form = Callable[["HashConsTable", Op, Inputs, Arguments], "Variable | None"]
"""From an op to be applied to a cheaper equivalent; None to apply the op as it is."""
Concern = tuple[Op, ...] | Callable[[Op], bool]
"""The ops that a rule applies to: a tuple, or a predicate, whose docstring's first line describes them."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rewriting rule."""

    name: str
    concern: Concern
    formula: str
    """The replacement that it makes, in one line."""

    @property
    def ops(self) -> str:
        """The ops that it applies to, in words."""
        if isinstance(self.concern, tuple):
            return ", ".join([op.name for op in self.concern])
        return first_line(self.concern)


RULES: dict[str, Rule] = {}
"""Every rule by its name. Several rules for one op are tried in this order."""

_forms: list[tuple[str, Concern, Form]] = []
"""The rewriting functions, each with the name of its rule ("" for a pass of several) and the ops that it applies to."""


def declared(name: str, concern: Concern, formula: str) -> str:
    """Enter a rule in the list, and return its name."""
    if name in RULES:
        raise ValueError(f"there are two rules named {name!r}")
    RULES[name] = Rule(name, concern, formula)
    return name


def rule(name: str, *ops: Op, every: Callable[[Op], bool] | None = None) -> Callable[[Form], Form]:
    """Enter the decorated function as a rule; its formula is the first line of its docstring.

    Args:
        name: The rule's name.
        ops: The ops that it applies to.
        every: Instead of `ops`, a predicate on ops.
    """

    def enter(function: Form) -> Form:
        concern = every or ops
        _forms.append((declared(name, concern, first_line(function)), concern, function))
        return function

    return enter


def form(*ops: Op) -> Callable[[Form], Form]:
    """Enter the decorated function as a pass of several rules for `ops`."""

    def enter(function: Form) -> Form:
        _forms.append(("", ops, function))
        return function

    return enter


def first_line(function: Callable[..., Any]) -> str:
    """The first line of a docstring."""
    return (function.__doc__ or "").strip().partition("\n")[0]


class Forms(dict[Op, tuple[Form, ...]]):
    """The rewriting functions of each op, with some rules switched off; looked up when the op is first met."""

    def __init__(self, off: frozenset[str]) -> None:
        super().__init__()
        self.off = off

    def __missing__(self, op: Op) -> tuple[Form, ...]:
        forms = tuple([
            function
            for name, concern, function in _forms
            if name not in self.off and (op in concern if isinstance(concern, tuple) else concern(op))
        ])
        if op.tables is None:  # else the op lives only as long as a user's class, and must not be kept alive
            self[op] = forms
        return forms


@lru_cache(maxsize=64)
def forms_without(off: frozenset[str]) -> Forms:
    """The rewriting functions in force without the rules of these names."""
    return Forms(off)


def show_rewrites() -> None:
    """Print every rewriting rule: its name, its formula, and the ops that it applies to."""
    rows = [(each.name, each.formula, each.ops) for each in RULES.values()]
    print("\n".join(aligned(rows)))
