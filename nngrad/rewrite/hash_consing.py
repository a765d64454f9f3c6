"""The hash-consing table: the same op on the same inputs is the same function."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ..graph import Function, Op, RuleCall, Variable, create
from ..graph.options import Specs
from .rules import Forms, Number, declared


def every_op(op: Op) -> bool:
    """all ops"""
    return True


EQUAL_FUNCTIONS = declared("equal-functions", every_op, "f(x) and f(x) are one function")


class HashConsTable:
    """Makes the functions that a gradient emits, each distinct expression once.

    The functions of the forward graph are known from the start, so a rule that says `tanh(x)` where
    the user computed it gets the user's own. Functions with effects are not shared, and random ones
    have a key of their own among their inputs, so that no two are alike.

    Args:
        forms: The rewriting rules in force, by op.
    """

    def __init__(self, forms: Forms) -> None:
        self.call: RuleCall | None = None
        """The call of a rule that is running."""
        self.order = 1
        """Order of differentiation of what is emitted."""
        self.created: list[Function] | None = None
        """Where what is emitted is written down, if anyone is `recording`."""
        self.off = forms.off
        """The names of the rules that are switched off."""
        shared: type[dict[Any, Any]] = NoCache if EQUAL_FUNCTIONS in self.off else dict
        self.monomials: dict[Hashable, Variable] = shared()
        """The emitted product of given powers of Variables."""
        self.sums: dict[frozenset[Variable], list[tuple[Variable, dict[Variable, Number], Number]]] = shared()
        """The emitted sums of given Variables, each with its terms and its constant."""
        self.terms: dict[Variable, tuple[dict[Variable, Number], Number]] = {}
        """The terms of what was looked at as a sum, and their constant."""
        self.unread_monomials: list[Variable] = []
        """Products of powers that were emitted earlier, and are not yet among those known."""
        self.unread_sums: list[Variable] = []
        """What was emitted earlier and not yet looked at, whether it is a sum."""
        self._forms = forms
        self._table: dict[tuple[Op, tuple[Any, ...], tuple[Variable, ...]], Any] = shared()

    def seed(self, known: list[Function]) -> None:
        """Let functions that exist already stand for what is emitted.

        But for those with effects, those at which a gradient stops, and constants that the user built, which are no
        numbers.
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
        """Returns the canonical form of `op` applied to `inputs`."""
        for form in self._forms[op]:
            y = form(self, op, inputs, arguments)
            if y is not None:
                return y
        return self.node(op, inputs, arguments, specs)

    def known(self, op: Op, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> Any:
        """Returns what `op` gives on `inputs`, if there is a function that computes it; else None."""
        return self._table.get((op, arguments, inputs))

    def node(self, op: Op, inputs: tuple[Variable, ...], arguments: tuple[Any, ...], specs: Specs = None) -> Any:
        """Returns what `op` gives on `inputs`: of the function that exists, or of a new one.

        Args:
            op: The op.
            inputs: What it is applied to.
            arguments: Its static arguments.
            specs: Shape and dtype of each output, where they are known.
        """
        key = op, arguments, inputs
        y = self._table.get(key)
        if y is None:
            y = self._table[key] = create(op, inputs, arguments, (), self.call, self.order, specs)
            if self.created is not None:
                self.created.append(y[0].parent if op.multiple_results else y.parent)
        return y


class NoCache(dict[Any, Any]):
    """A table that keeps nothing, so that nothing is found in it."""

    def __setitem__(self, key: Any, value: Any) -> None: ...

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Returns `default`."""
        return default
