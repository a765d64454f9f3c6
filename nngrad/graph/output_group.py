"""Output groups: Variables computed by one program, such as the results of one `nn.grad`."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .options import BuildOptions, build_options, contained, put_layers

if TYPE_CHECKING:
    from .variable import Variable

Again = Callable[[], Sequence["Variable"]]
"""Rebuilds the members of a group, in order, from their inputs."""


class OutputGroup:
    """Variables that one program computes, including those that nobody holds any more: the program must not depend on
    garbage collection.

    Args:
        members: The Variables. The group does not keep them alive, since they refer to it.
        again: Rebuilds all of them, or None if that is impossible. It does not refer to anything that depends on them.
    """

    __slots__ = ("_again", "_covered", "_members", "_serials", "run")

    run: Any
    """The plan to compute them, kept here by the engine when the first is read; it refers only to leaves."""

    def __init__(self, members: Iterable[Variable], again: Again | None = None) -> None:
        members = list(members)
        self._members = [weakref.ref(y) for y in members]
        self._serials = [-1 if y.parent is None else y.parent.serial for y in members]
        self._covered: dict[int, object] = {}
        self._again = again
        self.run = None

    def members_at(self, places: Iterable[int]) -> list[Variable | None]:
        """The members at these indices, None for one that is gone or now has another function."""
        found = [self._members[i]() for i in places]
        return [y if y is not None and y._group is self else None for y in found]

    def cover(self, serials: Iterable[int], forward: object) -> None:
        """Record `forward` as the last one to cover the functions with these serial numbers."""
        self._covered.update(dict.fromkeys(serials, forward))

    def covered_by(self, forward: object) -> list[int]:
        """The indices of the members that this forward was the last to cover; None stands for no forward."""
        return [i for i, serial in enumerate(self._serials) if self._covered.get(serial) is forward]

    def built_again(self) -> Sequence[Variable] | None:
        """The members rebuilt as new Variables, or None if that is impossible."""
        return None if self._again is None else self._again()


def together(variables: Sequence[Variable], again: Again | None = None) -> None:
    """Make Variables, except leaves among them, one group; `again` rebuilds all of them."""
    places = [i for i, y in enumerate(variables) if y.parent is not None]
    if len(places) < 2:
        return
    build, options = None, build_options()
    if again is not None and options.emitting.builder is None:  # a builder refers to all that it has made
        build = functools.partial(_built, again, places, options)
    members = [variables[i] for i in places]
    group = OutputGroup(members, build)
    for y in members:
        y._group = group


@contained
def _built(again: Again, places: Sequence[int], options: BuildOptions) -> list[Variable]:
    """The results of `again` at these indices, under the switches of the original call."""
    put_layers(options.layers)
    found = again()
    return [found[i] for i in places]
