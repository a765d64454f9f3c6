"""Routes of the arrows in a drawing; none crosses a box.

The spaces between layers, and between columns, contain only arrows. So an arrow within a column goes from layer to
layer through points that were placed like boxes. An arrow between columns leaves a box at its side if no other box is
in the way, or else between layers, and goes up or down on a track between the columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .svg import Point

_PORT = 9.0
"""The distance between the ends of arrows at one side of a box."""
_NEAR, _CLEAR = 26.0, 6.0
"""The maximum shift to straighten an arrow, and its minimum distance to the boxes and arrows that it passes."""
_SMALL = 5.0
"""Bends smaller than this are removed."""
_HEADINGS = {"top": (0.0, 1.0), "bottom": (0.0, -1.0), "left": (1.0, 0.0), "right": (-1.0, 0.0)}
"""The direction of an arrow that ends at each side of a box."""


class Route(NamedTuple):
    """The route of an arrow."""

    kind: str
    """'curved': vertical at each point; 'straight': lines with rounded corners; 'below': a bow below a layer."""
    points: tuple[Point, ...]
    heading: Point
    """The direction of its end, as a unit vector."""


class Places(NamedTuple):
    """The places of boxes and layers, and of arrows that pass them."""

    x: Sequence[float]
    y: Sequence[float]
    widths: Sequence[float]
    heights: Sequence[float]
    layer: Sequence[int]
    column: Sequence[int]
    top: Sequence[float]
    """The upper edge of each layer."""
    bottom: Sequence[float]
    points: Mapping[tuple[int, int], float]
    """The position at which arrows from a box pass a layer."""
    tracks: Mapping[tuple[int, int], float]
    """The position at which arrows from a box go up or down beside a column."""


Arrow = tuple[int, int]


def beside(source: int, target: int, column: Sequence[int]) -> int:
    """The column to the left of the track of an arrow between columns; the track is next to the target."""
    return column[target] - 1 if column[source] < column[target] else column[target]


def tracks_of(
    arrows: Sequence[Arrow], layer: Sequence[int], column: Sequence[int]
) -> dict[int, dict[int, int]]:
    """For each column, the number of the track of each source box with arrows to the right of the column."""
    spans: dict[int, dict[int, tuple[int, int]]] = {}
    for source, target in arrows:
        if column[source] != column[target] and layer[source] != layer[target]:
            here = spans.setdefault(beside(source, target, column), {})
            low, high = here.get(source, (layer[source], layer[source]))
            here[source] = min(low, layer[target]), max(high, layer[target])
    found: dict[int, dict[int, int]] = {}
    for c, here in spans.items():
        ends: list[list[tuple[int, int]]] = []
        for source, (low, high) in sorted(here.items(), key=lambda item: (item[1][1] - item[1][0], item[1], item[0])):
            number = next((n for n, taken in enumerate(ends) if all(high < a or b < low for a, b in taken)), len(ends))
            if number == len(ends):
                ends.append([])
            ends[number].append((low, high))
            found.setdefault(c, {})[source] = number
    return found


def routes_of(arrows: Sequence[Arrow], at: Places) -> list[Route]:
    """The route of each arrow."""
    first: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int], int] = {}
    """The leftmost and the rightmost box of each layer in each column."""
    for i in sorted(range(len(at.x)), key=lambda i: at.x[i]):
        first.setdefault((at.layer[i], at.column[i]), i)
        last[at.layer[i], at.column[i]] = i
    at = _straightened(arrows, at)
    ways = [_way(arrow, at, first, last) for arrow in arrows]
    ports = _ports(arrows, ways, at)
    return [_route(arrow, way, ports[n], at) for n, (arrow, way) in enumerate(zip(arrows, ways, strict=True))]


class _Way(NamedTuple):
    """The sides at which an arrow begins and ends, and where it passes between layers."""

    out: str
    """'top', 'bottom', 'left' or 'right'."""
    into: str
    passes: tuple[tuple[int, float], ...]
    """The layers that it passes, each with the position."""


def _way(
    arrow: Arrow, at: Places, first: Mapping[tuple[int, int], int], last: Mapping[tuple[int, int], int]
) -> _Way:
    source, target = arrow
    here, there = at.layer[source], at.layer[target]
    step = 1 if there > here else -1
    between = range(here + step, there, step) if here != there else range(0)
    sides = ("bottom", "top") if step > 0 else ("top", "bottom")
    if at.column[source] == at.column[target]:
        if here == there:
            return _Way("bottom", "bottom", ())
        return _Way(*sides, tuple([(n, at.points[source, n]) for n in between]))
    forwards = at.column[source] < at.column[target]
    ends, begins = (last, first) if forwards else (first, last)
    is_free = ends[here, at.column[source]] == source and begins[there, at.column[target]] == target
    if is_free and abs(at.column[source] - at.column[target]) == 1:
        out, into = ("right", "left") if forwards else ("left", "right")
        if here == there:
            return _Way(out, into, ())
        return _Way(out, into, ((-1, at.tracks[source, beside(source, target, at.column)]),))
    if here == there:
        return _Way("bottom", "bottom", ())
    track = at.tracks[source, beside(source, target, at.column)]
    return _Way(*sides, tuple([(n, track) for n in between]))


def _straightened(arrows: Sequence[Arrow], at: Places) -> Places:
    """The same places, with arrows moved to a straight line if there is room for one nearby.

    All arrows of a box in the same direction share their points, so they are moved together.
    """
    passed: dict[int, list[tuple[float, float, int]]] = {}
    """The occupants of each layer: centre, half width, and the box, or the source box of an arrow as ~."""
    for i, n in enumerate(at.layer):
        passed.setdefault(n, []).append((at.x[i], at.widths[i] / 2, i))
    for (source, n), x in at.points.items():
        passed.setdefault(n, []).append((x, 0.0, ~source))
    points = dict(at.points)
    farthest: dict[tuple[int, bool], int] = {}
    for source, target in arrows:
        if at.column[source] == at.column[target]:
            key = source, at.layer[target] > at.layer[source]
            last = farthest.setdefault(key, target)
            if abs(at.layer[target] - at.layer[source]) > abs(at.layer[last] - at.layer[source]):
                farthest[key] = target
    for (source, downwards), target in farthest.items():
        here, there = at.layer[source], at.layer[target]
        chain = range(here + 1, there) if downwards else range(there + 1, here)
        own = sorted([points[source, n] for n in chain])
        for x in (at.x[source], at.x[target], own[len(own) // 2]) if own else ():
            if max(x - own[0], own[-1] - x) <= _NEAR and all([
                abs(x - other) >= half + _CLEAR or (box < 0 and ~box == source)
                for n in chain for other, half, box in passed[n]
            ]):  # fmt: skip
                points.update({(source, n): x for n in chain})
                for n in chain:
                    passed[n] = [(x if box == ~source else other, half, box) for other, half, box in passed[n]]
                break
    return at._replace(points=points)


def _ports(arrows: Sequence[Arrow], ways: Sequence[_Way], at: Places) -> list[tuple[float, float]]:
    """For each arrow, the offsets of its begin and end from the middle of a side; arrows leave a side at one point."""
    sides: dict[tuple[int, str], dict[object, tuple[float, list[tuple[int, int]]]]] = {}
    for n, ((source, target), way) in enumerate(zip(arrows, ways, strict=True)):
        for end, (box, other, side) in enumerate(((source, target, way.out), (target, source, way.into))):
            upright = side in ("left", "right")
            near = at.y[other] if upright else (way.passes[-end][1] if way.passes else at.x[other])
            key: object = "out" if end == 0 else n
            mean, members = sides.setdefault((box, side), {}).setdefault(key, (near, []))
            members.append((n, end))
            sides[box, side][key] = (mean + (near - mean) / len(members), members)
    found = [[0.0, 0.0] for _ in arrows]
    for (box, side), ends in sides.items():
        room = (at.heights[box] if side in ("left", "right") else at.widths[box]) - 14
        space = min(_PORT, room / max(len(ends) - 1, 1))
        for k, (_, members) in enumerate(sorted(ends.values(), key=lambda entry: (entry[0], entry[1]))):
            for n, end in members:
                found[n][end] = (k - (len(ends) - 1) / 2) * space
    return [(a, b) for a, b in found]


def _route(arrow: Arrow, way: _Way, port: tuple[float, float], at: Places) -> Route:
    (x0, y0), (x1, y1) = [_end(box, side, offset, at) for box, side, offset in
                          zip(arrow, (way.out, way.into), port, strict=True)]  # fmt: skip
    source, target = arrow
    heading = _HEADINGS[way.into]
    if way.out in ("left", "right"):
        x = way.passes[0][1] if way.passes else (x0 + x1) / 2
        if abs(y0 - y1) < 3 and not way.passes:
            return Route("straight", ((x0, y0), (x1, y0)), heading)
        return Route("straight", ((x0, y0), (x, y0), (x, y1), (x1, y1)), heading)
    layer = at.layer[source]
    if layer == at.layer[target]:
        low = at.bottom[layer]
        return Route("below", ((x0, y0), (x0, low), (x1, low), (x1, y1)), heading)
    downwards = way.out == "bottom"
    if not way.passes and abs(x0 - x1) < _SMALL:
        x0 = x1 = (x0 + x1) / 2
    points = [(x0, y0), (x0, at.bottom[layer] if downwards else at.top[layer])]
    for n, x in way.passes:
        edges = at.top[n], at.bottom[n]
        points += [(x, y) for y in (edges if downwards else edges[::-1])]
    points += [(x1, at.top[at.layer[target]] if downwards else at.bottom[at.layer[target]]), (x1, y1)]
    return Route("curved", tuple(points), heading)


def _end(box: int, side: str, offset: float, at: Places) -> Point:
    x, y, w, h = at.x[box], at.y[box], at.widths[box] / 2, at.heights[box] / 2
    if side in ("top", "bottom"):
        return x + offset, y - h if side == "top" else y + h
    return x - w if side == "left" else x + w, y + offset
