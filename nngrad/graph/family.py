"""Families: Variables that belong together, such as the results of one `nn.grad`. The first that is read brings all."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .variable import Variable


class Family:
    """Variables that are computed together, as long as they live."""

    __slots__ = ("_members", "run")

    run: Any
    """How those that were read last are computed together, which the engine keeps here; it refers to leaves alone."""

    def __init__(self, members: Iterable[Variable]) -> None:
        self._members = [weakref.ref(y) for y in members]
        self.run = None

    def waiting(self, variable: Variable) -> list[Variable]:
        """Returns `variable` and those that are not computed either, and were covered by the same `forward()`."""
        assert variable.parent is not None
        snapshot = variable.parent.snapshot
        living = [y for ref in self._members if (y := ref()) is not None and y is not variable]
        return [variable, *[y for y in living if y.parent.snapshot is snapshot and not y.is_computed]]  # type: ignore[union-attr]


def together(variables: Sequence[Variable]) -> None:
    """Let Variables, but for leaves among them, be one family."""
    members = [y for y in variables if y.parent is not None]
    if len(members) > 1:
        family = Family(members)
        for y in members:
            y._family = family
