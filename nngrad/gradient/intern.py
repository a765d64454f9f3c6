"""Emitted functions: the same op on the same inputs is the same node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..graph import Function, Op, RuleCall, Variable, building, create
from .canonical import canonical_forms


class Emission:
    """Makes the functions that one call of `Grad` emits, each distinct expression once.

    The functions of the forward graph are known from the start, so a rule that says `tanh(x)` where
    the user computed it gets the user's own. Functions with effects are not shared, and random ones
    have a key of their own among their inputs, so that no two are alike.

    Args:
        known: The forward graph's functions.
        order: Order of differentiation of what is emitted.
    """

    def __init__(self, known: list[Function], order: int) -> None:
        self.call: RuleCall | None = None
        """The call of a rule that is running."""
        self._order = order
        self._table: dict[tuple[Any, ...], Function] = {
            (f.op, f.arguments, f.inputs): f for f in known if _shareable(f)
        }

    def emit(self, op: Op, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> Any:
        """The canonical form of `op` applied to `inputs`."""
        form = canonical_forms.get(op)
        if form is not None:
            y = form(self, inputs, arguments)
            if y is not None:
                return y
        return self.node(op, inputs, arguments)

    def node(self, op: Op, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> Any:
        """The function of `op` on `inputs`: the one that exists, or a new one."""
        key = (op, arguments, inputs)
        f = self._table.get(key)
        if f is not None:
            return f.outputs if op.several else f.outputs[0]
        y = create(op, inputs, arguments, (), self.call, self._order)
        self._table[key] = y[0].parent if op.several else y.parent
        return y


def _shareable(f: Function) -> bool:
    """Whether a user's function may serve as an emitted one: it has no effects, and no gradient stops at it."""
    if f.effects:
        return False
    for ref in f._outputs:
        y = ref()
        if y is not None and y._need_grad is False:
            return False
    return True


class PlainEmission:
    """Makes a new function for whatever is asked: simplification switched off."""

    def __init__(self, known: list[Function], order: int) -> None:
        self.call: RuleCall | None = None
        self._order = order

    def emit(self, op: Op, inputs: tuple[Variable, ...], arguments: tuple[Any, ...]) -> Any:
        """`op` applied to `inputs`."""
        return create(op, inputs, arguments, (), self.call, self._order)


@contextmanager
def simplify(on: bool = True) -> Iterator[None]:
    """Within this context, gradients are emitted simplified or (`simplify(False)`) just as the rules say.

    Values agree to rounding either way. It serves comparison and debugging.
    """
    if not isinstance(on, bool):
        raise TypeError(f"on: expected True or False, got {on!r}")
    with building.having("simplify", on):
        yield
