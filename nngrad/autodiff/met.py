"""Leaves that backwards have met, while a solver looks out for such as nobody trains."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from ..graph import Function, Variable
from ..graph.value import Value
from .binding import reached_from
from .request import derivation_of, derived_in

looking: set[weakref.ref[Any]] = set()
"""Who looks out."""

_met: deque[list[tuple[weakref.ref[Variable], weakref.ref[Value]]]] = deque(maxlen=64)
"""For each backward the leaves that its gradients reached, with the values that they had."""


def look_out(by: Any) -> None:
    """Let what backwards meet be noted, until `by` looks out no longer."""
    looking.add(weakref.ref(by, looking.discard))


def look_away(by: Any) -> bool:
    """Let `by` look out no longer; returns whether it did."""
    found = weakref.ref(by) in looking
    looking.discard(weakref.ref(by))
    return found


def met_by(outputs: list[Variable], leaves: Iterable[Variable], functions: Sequence[Function]) -> list[Variable]:
    """Those of the leaves that gradients of the outputs reach, but for what `grad` was asked to differentiate by, to
    give a result among the functions: that gradient is what the program is after."""
    reached = reached_from(outputs, frozenset())
    asked = {id(known.input) for y in derived_in(functions) if (known := derivation_of(y)) is not None}
    return [x for x in leaves if id(x) in reached and id(x) not in asked]


def note(leaves: Iterable[Variable]) -> None:
    """Note which leaves the gradients of one backward reach."""
    _met.append([(weakref.ref(x), weakref.ref(x.cell._value)) for x in leaves])


def met_with(own: Iterable[Variable]) -> list[Variable]:
    """The leaves that were met together with some of `own`, which are looked at now and not another time.

    What was written to since is data, and a gradient that was read, or is gone, is somebody's affair already.
    """
    cells = {id(p.cell) for p in own}
    noted = [(group, [(x, value()) for ref, value in group if (x := ref()) is not None]) for group in _met]
    written = {id(x) for _, group in noted for x, value in group if x.cell._value is not value}
    with_own = [any([id(x.cell) in cells for x, _ in group]) for _, group in noted]
    _met.clear()
    if looking:
        _met.extend([group for (group, _), is_own in zip(noted, with_own, strict=True) if not is_own])
    return [
        x
        for (_, group), is_own in zip(noted, with_own, strict=True)
        if is_own
        for x, _ in group
        if id(x) not in written and not (x.grad.is_empty or x.grad._value.has_view)
    ]
