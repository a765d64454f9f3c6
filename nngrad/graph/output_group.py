"""Output groups: Variables that are computed together, such as the results of one `nn.grad`."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .options import BuildOptions, build_options, contained, put_layers

if TYPE_CHECKING:
    from .variable import Variable

Again = Callable[[], Sequence["Variable"]]
"""Builds the members of a group once more, in their order, from what they were built from."""


class OutputGroup:
    """Variables that are computed together, those included that nobody holds any more: which program computes them must
    not depend on when the garbage collector comes.

    Args:
        members: The Variables. The group does not keep them alive, since they refer to it.
        again: Builds as many once more, None where that cannot be done. It refers to nothing that depends on them.
    """

    __slots__ = ("_again", "_covered", "_members", "_serials", "run")

    run: Any
    """How they are computed, which the engine keeps here when the first is read; it refers to leaves alone."""

    def __init__(self, members: Iterable[Variable], again: Again | None = None) -> None:
        members = list(members)
        self._members = [weakref.ref(y) for y in members]
        self._serials = [-1 if y.parent is None else y.parent.serial for y in members]
        self._covered: dict[int, object] = {}
        self._again = again
        self.run = None

    def members_at(self, places: Iterable[int]) -> list[Variable | None]:
        """The members at some places, None for one that is gone or has got another function."""
        found = [self._members[i]() for i in places]
        return [y if y is not None and y._group is self else None for y in found]

    def cover(self, serials: Iterable[int], forward: object) -> None:
        """Keep which forward has covered the functions of these serial numbers last."""
        self._covered.update(dict.fromkeys(serials, forward))

    def covered_by(self, forward: object) -> list[int]:
        """The places of the members that this forward has covered last; None stands for no forward."""
        return [i for i, serial in enumerate(self._serials) if self._covered.get(serial) is forward]

    def built_again(self) -> Sequence[Variable] | None:
        """As many Variables that compute the same, built once more; None where that cannot be done."""
        return None if self._again is None else self._again()


def together(variables: Sequence[Variable], again: Again | None = None) -> None:
    """Let Variables, but for leaves among them, be one group; `again` builds all of them once more."""
    places = [i for i, y in enumerate(variables) if y.parent is not None]
    if len(places) < 2:
        return
    build, options = None, build_options()
    if again is not None and options.emitting.builder is None:  # which refers to all that it has made
        build = functools.partial(_built, again, places, options)
    members = [variables[i] for i in places]
    group = OutputGroup(members, build)
    for y in members:
        y._group = group


@contained
def _built(again: Again, places: Sequence[int], options: BuildOptions) -> list[Variable]:
    """What `again` builds with the switches of then, at some places."""
    put_layers(options.layers)
    found = again()
    return [found[i] for i in places]
