"""Which scope of parameters each function of a graph is in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..graph import Function

if TYPE_CHECKING:
    from .description import Description


def scopes_of(described: Description, parameters: Mapping[int, str]) -> list[str]:
    """The scope of each node.

    That of a parameter is the one that it is in, and that of a function the one in which it was applied, where that was
    remembered (`nn.remember_places`). Else a function that reads parameters is in the scope that these have in common,
    and another one in the innermost scope in which both lie what it is computed from and what is computed from it.
    Gradients are in the scope of the function that they come from, and what is in a body in that of its function.

    Args:
        described: The nodes.
        parameters: Names of parameters by the ids of their cells.
    """
    tree = _Tree()
    found: list[int | None] = [None] * len(described)
    for i, x in described.leaves.items():
        name = parameters.get(id(x._data))
        found[i] = None if name is None else tree.at(_outer(name))
    above = _forward(described, tree, found, parameters)
    _between(described, tree, found, above)
    for i, order in enumerate(described.orders):
        if order and found[i] is None and described.body_of[i] < 0:
            base = described.bases[i]
            found[i] = found[base] if base >= 0 else tree.common([found[node] for node, _ in described.operands[i]])
    for i, b in enumerate(described.body_of):
        if b >= 0:
            found[i] = found[described.bodies[b].node]
    return [tree.paths[0 if scope is None else scope] for scope in found]


def _forward(
    described: Description, tree: _Tree, found: list[int | None], parameters: Mapping[int, str]
) -> list[int | None]:
    """Enter what is known by itself, and return the scope that all lies in from which each function of order 0 is
    computed."""
    above = list(found)
    direct: dict[Function, int | None] = {}
    for i, f in enumerate(described.functions):
        if f is None:
            continue
        source, base = f, f.origin
        while base is not None:
            source, base = base, base.origin
        if source.order:  # it comes from no function, and where gradients were asked for says nothing of it
            continue
        if source not in direct:
            direct[source] = _direct(source, tree, parameters)
        found[i] = direct[source]
        if f.order == 0:
            own = found[i]
            above[i] = tree.common([above[node] for node, _ in described.operands[i]]) if own is None else own
    return above


def _direct(f: Function, tree: _Tree, parameters: Mapping[int, str]) -> int | None:
    """The scope in which a function was applied, as far as it was remembered, or its parameters tell."""
    remembered = getattr(f, "scope", None)
    if remembered is not None:
        return tree.at(remembered)
    named = [parameters[id(x._data)] for x in f.inputs if x.parent is None and id(x._data) in parameters]
    return tree.common([tree.at(_outer(name)) for name in named])


def _between(described: Description, tree: _Tree, found: list[int | None], above: Sequence[int | None]) -> None:
    """Enter the scopes of functions of order 0 that lie between others."""
    below: list[int | None] = [None] * len(described)
    for i in range(len(described) - 1, -1, -1):
        if described.functions[i] is None or described.orders[i]:
            continue
        if found[i] is None and above[i] is not None and below[i] is not None:
            found[i] = tree.common([above[i], below[i]])
        passed = below[i] if found[i] is None else found[i]
        if passed is not None:
            for node, _ in described.operands[i]:
                below[node] = tree.common([below[node], passed])


def _outer(name: str) -> str:
    return name.rpartition("/")[0]


class _Tree:
    """Scopes by numbers, 0 for the outermost."""

    def __init__(self) -> None:
        self.paths = [""]
        self._parents = [0]
        self._depths = [0]
        self._numbers = {"": 0}
        self._known: dict[tuple[int, int], int] = {}

    def at(self, path: str) -> int:
        """The number of a scope."""
        number = self._numbers.get(path)
        if number is None:
            number = 0
            parts = path.split("/")
            for n in range(1, len(parts) + 1):
                outer, inner = number, "/".join(parts[:n])
                number = self._numbers.setdefault(inner, len(self.paths))
                if number == len(self.paths):
                    self.paths.append(inner)
                    self._parents.append(outer)
                    self._depths.append(n)
        return number

    def common(self, scopes: Iterable[int | None]) -> int | None:
        """The innermost scope that all of these lie in, but for None; None if there are none."""
        result: int | None = None
        for scope in scopes:
            if scope is not None and scope != result:
                result = scope if result is None else self._common(result, scope)
        return result

    def _common(self, a: int, b: int) -> int:
        key = (a, b)
        known = self._known.get(key)
        if known is None:
            while a != b:
                if self._depths[a] >= self._depths[b]:
                    a = self._parents[a]
                else:
                    b = self._parents[b]
            known = self._known[key] = a
        return known


