"""The gradient of a Variable as a Variable of its own graph."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from .engine import engine

if TYPE_CHECKING:
    from .ndarray import NdArray
    from .value import Thunk
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
        cell.defer(functools.partial(_fill, gradient, weakref.ref(cell)))  # the cell holds it


def _fill(variable: Variable, holder: Callable[[], NdArray | None], thunk: Thunk) -> None:
    """Fill in the value of a Variable for another cell."""
    if variable.parent is not None and (variable.cell is holder() or not variable.is_computed):
        engine.evaluate(variable)
    thunk.fill(variable.cell.raw())
