"""Which scope of parameters each function of a graph is in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..graph import Function

if TYPE_CHECKING:
    from .description import Description

ScopePath = str | None
"""A path, 'conv1/bn', empty for the outermost; None where it is not known."""


def scopes_of(described: Description, sources: Sequence[Function | None], parameters: Mapping[int, str]) -> list[str]:
    """The scope of each node.

    That of a parameter is the one that it is in, and that of a function the one in which it was applied, where that was
    remembered (`nn.source_locations`). Else a function that reads parameters is in the scope that these have in common,
    and another one in the innermost scope in which both lie what it is computed from and what is computed from it.
    Gradients are in the scope of the function that they come from, and what is in a body in that of its function.

    Args:
        described: The nodes.
        sources: For each function the one at the end of the chain of origins.
        parameters: Names of parameters by the ids of their cells.
    """
    found: list[ScopePath] = [None] * len(described)
    for i, x in described.leaves.items():
        name = parameters.get(id(x._data))
        found[i] = None if name is None else _outer(name)
    above = _forward(described, sources, found, parameters)
    _between(described, found, above)
    for i, order in enumerate(described.orders):
        if order and found[i] is None and described.body_of[i] < 0:
            base = described.bases[i]
            found[i] = found[base] if base >= 0 else common([found[node] for node, _ in described.operands[i]])
    for i, b in enumerate(described.body_of):
        if b >= 0:
            found[i] = found[described.bodies[b].node]
    return [scope or "" for scope in found]


def _forward(
    described: Description, sources: Sequence[Function | None], found: list[ScopePath], parameters: Mapping[int, str]
) -> list[ScopePath]:
    """Enter what is known by itself, and return the scope that all lies in from which each function of order 0 is
    computed."""
    above = list(found)
    direct: dict[Function, ScopePath] = {}
    for i, source in enumerate(sources):
        if source is None or source.order:  # that comes from no function, and where it was asked for says nothing of it
            continue
        if source not in direct:
            direct[source] = _direct(source, parameters)
        own = found[i] = direct[source]
        if described.orders[i] == 0:
            above[i] = common([above[node] for node, _ in described.operands[i]]) if own is None else own
    return above


def _direct(f: Function, parameters: Mapping[int, str]) -> ScopePath:
    """The scope in which a function was applied, as far as it was remembered, or its parameters tell."""
    remembered: str | None = getattr(f, "scope", None)
    if remembered is not None:
        return remembered
    named = [parameters[id(x._data)] for x in f.inputs if x.parent is None and id(x._data) in parameters]
    return common([_outer(name) for name in named])


def _between(described: Description, found: list[ScopePath], above: Sequence[ScopePath]) -> None:
    """Enter the scopes of functions of order 0 that lie between others."""
    below: list[ScopePath] = [None] * len(described)
    for i in range(len(described) - 1, -1, -1):
        if described.functions[i] is None or described.orders[i]:
            continue
        if found[i] is None and above[i] is not None and below[i] is not None:
            found[i] = common([above[i], below[i]])
        passed = below[i] if found[i] is None else found[i]
        if passed is not None:
            for node, _ in described.operands[i]:
                below[node] = common([below[node], passed])


def _outer(name: str) -> str:
    return name.rpartition("/")[0]


def common(scopes: Iterable[ScopePath]) -> ScopePath:
    """The innermost scope that all of these lie in, but for None; None if there are none."""
    known = {scope for scope in scopes if scope is not None}
    if len(known) < 2:
        return next(iter(known), None)
    return "/".join(common_path([tuple(scope.split("/")) for scope in known]))


def common_path(paths: Collection[tuple[str, ...]]) -> tuple[str, ...]:
    """What all paths begin with."""
    first, last = min(paths, default=()), max(paths, default=())
    differ = (k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return first[: next(differ, min(len(first), len(last)))]
