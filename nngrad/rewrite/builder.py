"""The gradient builder: a hash-consing table that returns the same function for the same op on the same inputs, and the
switch for its rewriting rules."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..graph import Function, Op, RuleCall, Variable, build_options, create, switched
from ..graph.function import any_hooked, function_hooks
from ..graph.options import Builder, Specs, Switched
from ..graph.spelling import left_out
from .rules import RULES, Forms, Number, declared, forms_without


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
        self.created: list[Function] | None = None
        """The list to record emitted functions in, within `recording`."""
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
            found = table.get(key)
            y = f._outputs[0]()
            outputs = f.outputs if y is None or len(f._outputs) > 1 else (y,)
            if any([y._need_grad is False for y in outputs]):
                if found is outputs[0] or (found.__class__ is tuple and found[0] is outputs[0]):
                    del table[key]
            elif found is None and f.op.multiple_results:
                table[key] = outputs
            elif found is None:
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
            if self.created is not None:
                self.created.append(y[0].parent if op.multiple_results else y.parent)
        return y


class NoCache(dict[Any, Any]):
    """A dict that stores nothing."""

    def __setitem__(self, key: Any, value: Any) -> None: ...

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return `default`."""
        return default


# ---------------------------------------------------------------- which one is in force


def builder_for(known: list[Function]) -> HashConsTable:
    """A new builder, for a gradient of the functions `known`."""
    options = build_options()
    without = options.emitting.simplify
    # Hooks must see the backward of each function separately, not common subexpressions.
    if not without or options.watching.hooks or (function_hooks and any_hooked(known)):
        return plain_builder()
    return HashConsTable(forms_without(frozenset() if without is True else without))


def plain_builder() -> HashConsTable:
    """A builder with all rules off, which makes a new function for each request."""
    return HashConsTable(forms_without(frozenset(RULES)))


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
        builder = builder_for(known)
        with switched(builder=builder, precision=None):
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


@contextmanager
def recording(builder: Builder) -> Iterator[list[Function]]:
    """List the functions that `builder` makes within a context, in topological order."""
    outer, builder.created = builder.created, []
    created = builder.created
    try:
        yield created
    finally:
        builder.created = outer
        if outer is not None:
            outer += created


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
    if not isinstance(on, bool):
        raise TypeError(f"on: expected True or False, got {on!r}")
    names = left_out(without, RULES, "rule", "rules", "nn.show_rewrites()")
    return switched(simplify=(names or True) if on else False)
