"""The initial view of a large graph: modules and repetitions are collapsed until the user opens them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .page_layout import Group, PageLayout

MOST = 40
"""The maximum number of boxes in the initial view of a large graph, if collapsing groups can achieve it."""
SMALL = 60
"""The maximum number of boxes for which all groups stay open."""


WHOLE = 3000
"""The number of nodes from which the page initially shows every repetition, since otherwise little would be visible."""


class InitialView(NamedTuple):
    """The groups of a layout, with additional ones of kind 'rest' that are collapsed at first."""

    groups: list[Group]
    """The groups of the layout, followed by the collapsed ones. A group may precede the one that contains it."""
    holder: list[int]
    """For each group the outermost collapsed group that contains it or is it; -1 for none."""


def initial_view(laid: PageLayout) -> InitialView:
    """Choose the groups to collapse: all repetitions of a block except the first; in a large graph also scopes, bodies
    and blocks, the smallest first, until few boxes are left."""
    groups = list(laid.groups)
    children: dict[int, list[int]] = {}
    for i, group in enumerate(groups):
        children.setdefault(group.parent, []).append(i)
    for i, group in enumerate(laid.groups):
        repetitions = children.get(i, [])
        if group.kind == "block" and len(repetitions) == group.times:
            _enclose(groups, repetitions[1:], f"{group.times - 1} more", group.times - 1)
    direct = [0] * len(groups)
    nodes = laid.group
    for i in nodes:
        direct[i] += 1
    sizes = direct[:]
    for i in reversed(range(len(laid.groups))):
        if laid.groups[i].parent >= 0:
            sizes[laid.groups[i].parent] += sizes[i]
    holder = _holders(groups)
    if _boxes(holder, direct) > SMALL and len(nodes) < WHOLE:
        closing = [i for i, group in enumerate(laid.groups) if group.kind != "order" and sizes[i] > 1]
        wrapped = groups
        for size in sorted({sizes[i] for i in closing}):
            wrapped, chosen = groups[:], [i for i in closing if sizes[i] <= size and groups[i].kind != "repetition"]
            for i in chosen:
                _enclose(wrapped, [i], _title(laid.groups, children, i), groups[i].times)
            holder = _holders(wrapped)
            if _boxes(holder, direct) <= MOST:
                break
        groups = wrapped
    return InitialView(groups, holder)


def _title(groups: Sequence[Group], children: dict[int, list[int]], i: int) -> str:
    """The title of a group; for a block its repeated scopes, if any, and the number of repetitions."""
    kind, name, _, times, _ = groups[i]
    inside = children.get(i, [])
    scopes = [groups[j].name for k in inside for j in (k, *children.get(k, [])) if groups[j].kind == "scope"]
    if kind == "block" and len(scopes) == times:
        return f"{scopes[0]} … {scopes[-1]}"
    return f"{name} \u00d7 {times}" if times > 1 else name


def _enclose(groups: list[Group], members: Sequence[int], name: str, times: int) -> None:
    """Put a collapsed group around some children of one group."""
    boxes = [groups[i].box for i in members]
    box = min(b[0] for b in boxes), min(b[1] for b in boxes), max(b[2] for b in boxes), max(b[3] for b in boxes)
    groups.append(Group("rest", name, groups[members[0]].parent, times, box))
    for i in members:
        groups[i] = groups[i]._replace(parent=len(groups) - 1)


def _holders(groups: Sequence[Group]) -> list[int]:
    """For each group the outermost collapsed one that contains it or is it; -1 if none."""
    holders = []
    for i in range(len(groups)):
        holder, at = -1, i
        while at >= 0:
            holder, at = at if groups[at].kind == "rest" else holder, groups[at].parent
        holders.append(holder)
    return holders


def _boxes(holders: Sequence[int], counts: Sequence[int]) -> int:
    """The number of visible boxes: nodes in open groups, and collapsed groups."""
    seen = list(zip(holders, counts, strict=False))
    return sum([count for holder, count in seen if holder < 0]) + len({h for h, count in seen if h >= 0 and count})
