"""Output groups: Variables that belong together, such as the results of one `nn.grad`, and are computed together."""

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
    """How they are computed, which the engine keeps here when the first is read; it refers to leaves alone."""

    def __init__(self, members: Iterable[Variable]) -> None:
        self._members = [weakref.ref(y) for y in members]
        self.run = None

    def members(self) -> list[Variable | None]:
        """The members in their order, None in the place of one that nobody holds any more."""
        return [ref() for ref in self._members]

    def covered_by(self, snapshot: Any) -> list[Variable]:
        """The members that were covered last by this forward; None stands for no forward."""
        living = [y for y in self.members() if y is not None]
        return [y for y in living if y.parent is not None and y.parent.snapshot is snapshot]


def together(variables: Sequence[Variable]) -> None:
    """Let Variables, but for leaves among them, be one group."""
    members = [y for y in variables if y.parent is not None]
    if len(members) > 1:
        family = Family(members)
        for y in members:
            y._family = family
