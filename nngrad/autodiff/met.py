"""Leaves that backwards have met, while a solver looks out for such as nobody trains."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from ..graph import Variable
from ..graph.value import Value

looking: weakref.WeakSet[Any] = weakref.WeakSet()
"""Who looks out."""

_met: dict[int, tuple[weakref.ref[Variable], weakref.ref[Value]]] = {}
"""The leaves by their ids, with the values that they had."""


def note(leaves: Iterable[Variable]) -> None:
    """Note that gradients were asked of these leaves."""
    for x in leaves:
        _met.setdefault(id(x), (weakref.ref(x), weakref.ref(x.cell._value)))


def noted(by: Any) -> list[Variable]:
    """The leaves that were met, for one who looks out no longer. What was written to since is data, and a gradient
    that was read, or is gone, is somebody's affair already."""
    looking.discard(by)
    found = [(x, value()) for ref, value in _met.values() if (x := ref()) is not None]
    if not looking:
        _met.clear()
    return [x for x, value in found if x.cell._value is value and not (x.grad.is_empty or x.grad._value.lent)]
