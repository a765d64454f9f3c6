"""The gradient builder: a hash-consing table that returns the same function for the same op on the same inputs; the
list of its rewriting rules, with the ops that each applies to; and the switch for them.

`rewriting_rule` enters a rule that is a function of its own. Products and sums are brought to canonical form in one
pass that combines several rules: those are `declared`, `form` enters the pass, and it checks whether a rule is off only
where that would fire. So rules that are off slow down nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from ..graph import Function, Op, RuleCall, Switched, Variable, build_options, create
from ..graph.arguments import coerced
from ..graph.event import AROUND
from ..graph.messages import left_out
from ..graph.options import Builder, Specs

Number = int | float | Fraction
"""A number that multiplies a Variable."""
Inputs = tuple[Variable, ...]
Arguments = tuple[Any, ...]
Form = Callable[["HashConsTable", Op, Inputs, Arguments], "Variable | None"]
"""From an op to be applied to a cheaper equivalent; None to apply the op as it is."""
Concern = tuple[Op, ...] | Callable[[Op], bool]
"""The ops that a rule applies to: a tuple, or a predicate, whose docstring's first line describes them."""


@dataclass(frozen=True, slots=True)
class RewritingRule:
    """A rewriting rule: what it is called, and what it does."""

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


RULES: dict[str, RewritingRule] = {}
"""Every rule by its name. Several rules for one op are tried in this order."""

_forms: list[tuple[str, Concern, Form]] = []
"""The rewriting functions, each with the name of its rule ("" for a pass of several) and the ops that it applies to."""


def declared(name: str, concern: Concern, formula: str) -> str:
    """Enter a rule in the list, and return its name."""
    if name in RULES:
        raise ValueError(f"there are two rules named {name!r}")
    RULES[name] = RewritingRule(name, concern, formula)
    return name


def rewriting_rule(name: str, *ops: Op, every: Callable[[Op], bool] | None = None) -> Callable[[Form], Form]:
    """Enter the decorated function as a rule; its formula is the first line of its docstring.

    It is called with the builder, the op that is about to be emitted, its inputs and its static arguments, and returns
    a cheaper Variable of the same value, shape and dtype, or None. Enter rules before the first gradient is built:
    gradients that come again are not emitted anew.

    Args:
        name: The rule's name, for `nn.show_rewrites` and `nn.simplify(without=...)`.
        ops: The ops that it applies to.
        every: Instead of `ops`, a predicate on ops.
    """

    def enter(function: Form) -> Form:
        concern = every or ops
        _forms.append((declared(name, concern, first_line(function)), concern, function))
        forms_without.cache_clear()
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


def every_op(op: Op) -> bool:
    """all ops"""
    return True


EQUAL_FUNCTIONS = declared("equal-functions", every_op, "f(x) and f(x) are one function")


class HashConsTable:
    """Makes the functions that a gradient emits, each distinct expression once.

    It is seeded with the functions of the forward graph, so a rule that says `tanh(x)` where the user
    computed it gets the user's own. Functions with effects are not shared; random ones have a key of
    their own among their inputs, so that no two are equal.

    Args:
        forms: The rewriting rules in force, by op.
    """

    def __init__(self, forms: Forms) -> None:
        self.call: RuleCall | None = None
        """The running call of a rule."""
        self.order = 1
        """Order of differentiation of emitted functions."""
        self.off = forms.off
        """The names of the rules switched off."""
        shared: type[dict[Any, Any]] = NoCache if EQUAL_FUNCTIONS in self.off else dict
        self.monomials: dict[Hashable, Variable] = shared()
        """Emitted products, by the powers of their Variables."""
        self.sums: dict[frozenset[Variable], list[tuple[Variable, dict[Variable, Number], Number]]] = shared()
        """Emitted sums by their Variables, each with its terms and its constant."""
        self.terms: dict[Variable, tuple[dict[Variable, Number], Number]] = {}
        """The terms and constants of Variables already examined as sums."""
        self.unread_monomials: list[Variable] = []
        """Products of powers emitted earlier, and not entered in `monomials` yet."""
        self.unread_sums: list[Variable] = []
        """Variables emitted earlier, and not yet examined as sums."""
        self._forms = forms
        self._table: dict[tuple[Op, tuple[Any, ...], tuple[Variable, ...]], Any] = shared()

    def seed(self, known: list[Function]) -> None:
        """Reuse functions that exist already in place of equal emitted ones.

        Excluded are functions with effects, those at which a gradient stops, and constants that the user built, which
        do not count as numbers.
        """
        table = self._table
        for f in known:
            if f.effects or not (f.inputs or f.order):
                continue
            key = f.op, f.arguments, f.inputs
            existing = table.get(key)
            y = None if f._output.__class__ is tuple else f._output()
            outputs = f.outputs if y is None else (y,)
            if any([y._need_grad is False for y in outputs]):
                if existing is outputs[0] or (existing.__class__ is tuple and existing[0] is outputs[0]):
                    del table[key]
            elif existing is None and f.op.multiple_results:
                table[key] = outputs
            elif existing is None:
                table[key] = y = outputs[0]
                if f.order:
                    (self.unread_sums if f.op.powers is None else self.unread_monomials).append(y)

    def emit(self, op: Op, inputs: tuple[Variable, ...], arguments: tuple[Any, ...], specs: Specs = None) -> Any:
        """The canonical form of `op` applied to `inputs`."""
        for form in self._forms[op]:
            y = form(self, op, inputs, arguments)
            if y is not None:
                return y
        return self.node(op, inputs, arguments, specs)

    def known(self, op: Op, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> Any:
        """The output of the existing function that applies `op` to `inputs`, or None."""
        return self._table.get((op, arguments, inputs))

    def node(self, op: Op, inputs: tuple[Variable, ...], arguments: tuple[Any, ...], specs: Specs = None) -> Any:
        """The output of `op` on `inputs`: from the existing function, or from a new one.

        Args:
            op: The op.
            inputs: Its inputs.
            arguments: Its static arguments.
            specs: Shape and dtype of each output, if they are known.
        """
        key = op, arguments, inputs
        y = self._table.get(key)
        if y is None:
            y = self._table[key] = create(op, inputs, arguments, (), self.call, self.order, specs)
        return y


class NoCache(dict[Any, Any]):
    """A dict that stores nothing."""

    def __setitem__(self, key: Any, value: Any) -> None: ...

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return `default`."""
        return default

# ---------------------------------------------------------------- which one is in force


def new_builder() -> HashConsTable:
    """A new builder, for a gradient."""
    options = build_options()
    without = options.emitting.simplify
    # Hooks must see the backward of each function separately, not common subexpressions.
    if not without or options.hears(*AROUND):
        # It makes a new function for each request: all rules are off but those on which the value depends.
        return HashConsTable(forms_without(frozenset(RULES) - {"exact-quotients", "lengths"}))
    return HashConsTable(forms_without(frozenset() if without is True else without))


@contextmanager
def emitting(known: list[Function], order: int) -> Iterator[Builder]:
    """Put a builder in force within a context: the present one, or else a new one.

    Args:
        known: Functions that exist already, and may be reused.
        order: Order of differentiation of emitted functions.
    """
    options = build_options()
    outer = options.emitting.builder
    if outer is None:
        builder = new_builder()
        with Switched(builder=builder, precision=None):
            builder.seed(known)
            builder.order = order
            yield builder
        return
    before = outer.call, outer.order
    outer.seed(known)
    outer.order = order
    try:
        yield outer
    finally:
        outer.call, outer.order = before


def simplify(on: bool = True, *, without: Iterable[str] = ()) -> Switched:
    """Within this context, emit gradients simplified or (`simplify(False)`) exactly as the rules say.

    Values agree to rounding either way. Use it for comparison and debugging. Only the innermost context counts.

    Args:
        on: Whether to simplify.
        without: Names of rewriting rules to leave out, to find the one that makes a difference;
            `nn.show_rewrites()` lists them.

    Raises:
        TypeError: `on` is no bool, or `without` a string.
        ValueError: A name in `without` is not that of a rule.
    """
    coerced(bool, on, "on")
    names = left_out(without, RULES, "rule", "rules", "nn.show_rewrites()")
    return Switched(simplify=(names or True) if on else False)
