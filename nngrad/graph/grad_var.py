"""The gradient of a Variable as a Variable of its own graph."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from .engine import engine
from .value import Deferred

if TYPE_CHECKING:
    from .ndarray import NdArray
    from .variable import Variable


def keep_gradient(x: Variable, gradient: Variable | None) -> None:
    """Set the gradient Variable of `x`; `x.g` is its value, computed when it is read. None clears it."""
    if gradient is None:
        x.cleargrad()
        return
    if not hasattr(gradient, "get_unlinked_variable"):
        kind = type(gradient).__name__
        raise TypeError(f"grad_var: expected a Variable or None, got {kind}; set arrays through .g")
    if gradient.spec is not x.spec:
        raise ValueError(f"grad_var: the gradient must be {x.spec}, like the Variable, got {gradient.spec}")
    cell = x.grad
    cell.variable = gradient
    if gradient.parent is not None or gradient.cell is not cell:
        cell.defer(_ValueOf(gradient, cell).value())


class _ValueOf:
    """Computes a Variable's value for another cell."""

    __slots__ = ("_cell", "_value", "_variable")

    def __init__(self, variable: Variable, cell: NdArray) -> None:
        self._variable = variable
        self._cell = weakref.ref(cell)  # the cell holds this object

    def value(self) -> Deferred:
        """The deferred Value for the cell to hold."""
        value = Deferred(self)
        self._value = weakref.ref(value)
        return value

    def run(self) -> None:
        """Compute the value."""
        variable, value = self._variable, self._value()
        if variable.parent is not None and (variable.cell is self._cell() or not variable.is_computed):
            engine.evaluate(variable)
        if value is not None:
            value.fill(variable.cell.raw())
