"""Names of what is in a graph: those of Variables and parameters, and new ones for the rest, none given twice."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count as numbers_from

from ..graph import Variable
from ..graph.shortening import printable
from ..parameter import every_parameter

Parameters = Mapping[str, Variable] | None


def parameter_names(parameters: Parameters) -> dict[int, str]:
    """The names of parameters, by the ids of their cells of data, which copies of a parameter share with it.

    Args:
        parameters: Parameters by name, which come before those that are registered.

    Raises:
        TypeError: It is no dict of Variables by name.
    """
    if parameters is not None and not isinstance(parameters, Mapping):
        raise TypeError(f"parameters: expected a dict of Variables by name, got {type(parameters).__name__}")
    names: dict[int, str] = {}
    for name, x in (*every_parameter(), *(parameters or {}).items()):
        if not isinstance(x, Variable) or not isinstance(name, str):
            raise TypeError(f"parameters: expected a dict of Variables by name, got {name!r}: {type(x).__name__}")
        if x._data is not None:
            names[id(x._data)] = name
    return names


class Names:
    """Gives names, none of them twice."""

    def __init__(self) -> None:
        self._numbers = {kind: numbers_from() for kind in ("leaf", "v", "carry", "slice")}
        """Of names that are made up."""
        self._taken: set[str] = set()

    def given(self, name: str) -> str:
        """A name that somebody has given, with a number where it is taken."""
        name = printable(name)
        if name in self._taken:
            return self.new(name)
        self._taken.add(name)
        return name

    def like(self, name: str) -> str:
        """A name in place of one of another graph: the same, unless it was made up."""
        kind = name.rstrip("0123456789")
        return self.new(kind) if kind in self._numbers else self.given(name)

    def new(self, kind: str) -> str:
        """A name of this kind that there is not yet."""
        numbers = self._numbers.get(kind)
        if numbers is None:
            numbers = self._numbers[kind] = numbers_from()
        while True:
            name = f"{kind}{next(numbers)}"
            if name not in self._taken:
                self._taken.add(name)
                return name
