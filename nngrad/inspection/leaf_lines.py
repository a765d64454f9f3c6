"""Leaves as a listing names them: each by itself, or many of one kind, shape and pattern of name together."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ..graph import Spec
from .description import Description, Kind

_LEAST = 4
"""How many leaves of one pattern are told together at least."""


class LeafLine(NamedTuple):
    """Leaves that have one line."""

    node: int
    """The first of them."""
    names: tuple[str, ...]
    what: str
    """'leaf', 'parameter', with whether gradients are asked for."""
    spec: Spec


def leaf_lines(described: Description, nodes: Iterable[int], together: bool) -> list[LeafLine]:
    """The lines of leaves; `together` puts those on one line of which the names differ by numbers alone."""
    groups: dict[tuple[str, str, Spec], list[int]] = {}
    for node in nodes:
        name, (spec,) = described.names[node], described.specs[node]
        groups.setdefault((re.sub(r"\d+", "0", name), _what(described, node), spec), []).append(node)
    lines = []
    for (_, what, spec), members in groups.items():
        if together and len(members) >= _LEAST:
            lines.append(LeafLine(members[0], tuple([described.names[i] for i in members]), what, spec))
        else:
            lines += [LeafLine(i, (described.names[i],), what, spec) for i in members]
    return sorted(lines)


def _what(described: Description, node: int) -> str:
    asked = described.needs_grad[node]
    if described.kinds[node] is Kind.PARAMETER:
        return "parameter" if asked else "parameter, needs no gradient"
    return "leaf, needs a gradient" if asked else "leaf"
