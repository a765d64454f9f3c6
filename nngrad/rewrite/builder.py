"""Emitted functions: the same op on the same inputs is the same node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..graph import Function, Op, RuleCall, Variable, build_options, create, switched
from ..graph.function import any_hooked, function_hooks
from ..graph.options import Builder as AnyBuilder
from ..graph.options import Specs, Switched
from .canonical import canonical_forms
from .numbers import Number
from .polynomial import POLYNOMIAL, Terms, remember


class Builder:
    """Makes the functions that a gradient emits, each distinct expression once.

    The functions of the forward graph are known from the start, so a rule that says `tanh(x)` where
    the user computed it gets the user's own. Functions with effects are not shared, and random ones
    have a key of their own among their inputs, so that no two are alike.
    """

    def __init__(self) -> None:
        self.call: RuleCall | None = None
        """The call of a rule that is running."""
        self.order = 1
        """Order of differentiation of what is emitted."""
        self.created: list[Function] | None = None
        """Where what is emitted is written down, if anyone is `recording`."""
        self.terms: dict[Variable, tuple[Terms, Number]] = {}
        """The terms of what was looked at as a sum, and their constant."""
        self.products: dict[frozenset[tuple[Variable, int]], Variable] = {}
        """The emitted product of given factors."""
        self.sums: dict[frozenset[Variable], list[tuple[Variable, Terms, Number]]] = {}
        """The emitted sums of given Variables, each with its terms and its constant."""
        self._table: dict[tuple[Any, ...], Function] = {}

    def learn(self, known: list[Function]) -> None:
        """Let functions that exist already stand for what is emitted."""
        table = self._table
        for f in known:
            if table.setdefault((f.op, f.arguments, f.inputs), f) is f:
                if not _shareable(f):
                    del table[f.op, f.arguments, f.inputs]
                elif f.order and f.op in POLYNOMIAL and f.specs[0].differentiable:
                    remember(self, f.outputs[0])

    def emit(self, op: Op, inputs: tuple[Variable, ...], arguments: tuple[Any, ...], specs: Specs = None) -> Any:
        """The canonical form of `op` applied to `inputs`."""
        form = canonical_forms.get(op)
        if form is not None:
            y = form(self, inputs, arguments)
            if y is not None:
                return y
        return self.node(op, inputs, arguments, specs)

    def node(self, op: Op, inputs: tuple[Variable, ...], arguments: tuple[Any, ...], specs: Specs = None) -> Any:
        """The function of `op` on `inputs`: the one that exists, or a new one."""
        key = (op, arguments, inputs)
        f = self._table.get(key)
        if f is not None:
            return f.outputs if op.several else f.outputs[0]
        y = create(op, inputs, arguments, (), self.call, self.order, specs)
        f = self._table[key] = y[0].parent if op.several else y.parent
        if self.created is not None:
            self.created.append(f)
        return y


def _shareable(f: Function) -> bool:
    """Whether a function may serve as an emitted one: it has no effects, no gradient stops at it, and it is no constant
    that the user built, which is no number."""
    if f.effects or not (f.inputs or f.order):
        return False
    for ref in f._outputs:
        y = ref()
        if y is not None and y._need_grad is False:
            return False
    return True


class PlainBuilder:
    """Makes a new function for whatever is asked: simplification switched off."""

    def __init__(self) -> None:
        self.call: RuleCall | None = None
        self.order = 1
        self.created: list[Function] | None = None

    def learn(self, known: list[Function]) -> None:
        """Nothing: every function is made anew."""

    def emit(self, op: Op, inputs: tuple[Variable, ...], arguments: tuple[Any, ...], specs: Specs = None) -> Any:
        """`op` applied to `inputs`."""
        y = create(op, inputs, arguments, (), self.call, self.order, specs)
        if self.created is not None:
            self.created.append(y[0].parent if op.several else y.parent)
        return y


def builder_for(known: list[Function]) -> AnyBuilder:
    """A new builder, for a gradient of `known` functions."""
    options = build_options()
    # Hooks shall find the backward of each function by itself, and not what several have in common.
    simplified = options.simplify and not options.hooks and not (function_hooks and any_hooked(known))
    return Builder() if simplified else PlainBuilder()


@contextmanager
def emitting(known: list[Function], order: int) -> Iterator[AnyBuilder]:
    """An builder that is in force within this context: the one that is in force already, or a new one.

    Args:
        known: Functions that exist already, and may stand for what is emitted.
        order: Order of differentiation of what is emitted.
    """
    options = build_options()
    outer = options.builder
    if outer is None:
        builder = builder_for(known)
        with switched(builder=builder):
            builder.learn(known)
            builder.order = order
            yield builder
        return
    before = outer.call, outer.order
    outer.learn(known)
    outer.order = order
    try:
        yield outer
    finally:
        outer.call, outer.order = before


@contextmanager
def recording(builder: AnyBuilder) -> Iterator[list[Function]]:
    """Within this context, a list of the functions that `builder` makes, in an order in which they can run."""
    outer, builder.created = builder.created, []
    created = builder.created
    try:
        yield created
    finally:
        builder.created = outer
        if outer is not None:
            outer += created


def simplify(on: bool = True) -> Switched:
    """Within this context, gradients are emitted simplified or (`simplify(False)`) just as the rules say.

    Values agree to rounding either way. It serves comparison and debugging.
    """
    if not isinstance(on, bool):
        raise TypeError(f"on: expected True or False, got {on!r}")
    return switched(simplify=on)
