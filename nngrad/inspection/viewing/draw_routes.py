"""Routes of the arrows in a drawing; none crosses a box.

The spaces between layers, and between columns, contain only arrows. So an arrow within a column goes from layer to
layer through points that were placed like boxes. An arrow between columns leaves a box at its side if no other box is
in the way, or else between layers, and goes up or down on a track between the columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .draw_contents import Box, Picture, Route
from .svg import Point

_PORT = 9.0
"""The distance between the ends of arrows at one side of a box."""
_NEAR, _CLEAR = 26.0, 6.0
"""The maximum shift to straighten an arrow, and its minimum distance to the boxes and arrows that it passes."""
_SMALL = 5.0
"""Bends smaller than this are removed."""
_HEADINGS = {"top": (0.0, 1.0), "bottom": (0.0, -1.0), "left": (1.0, 0.0), "right": (-1.0, 0.0)}
"""The direction of an arrow that ends at each side of a box."""
_SIDEWAYS = "left", "right"


def _track(source: Box, target: Box) -> int:
    """The column to the left of the track of an arrow between columns; the track is next to the target."""
    return target.column - 1 if source.column < target.column else target.column


def tracks_of(picture: Picture) -> dict[int, dict[int, int]]:
    """For each column, the number of the track of each source box with arrows to the right of the column."""
    spans: dict[int, dict[int, tuple[int, int]]] = {}
    for i, j in picture.arrows:
        source, target = picture.boxes[i], picture.boxes[j]
        if source.column != target.column and source.layer != target.layer:
            here = spans.setdefault(_track(source, target), {})
            low, high = here.get(i, (source.layer, source.layer))
            here[i] = min(low, target.layer), max(high, target.layer)
    tracks: dict[int, dict[int, int]] = {}
    for c, here in spans.items():
        ends: list[list[tuple[int, int]]] = []
        for i, (low, high) in sorted(here.items(), key=lambda item: (item[1][1] - item[1][0], item[1], item[0])):
            number = next((n for n, taken in enumerate(ends) if all(high < a or b < low for a, b in taken)), len(ends))
            if number == len(ends):
                ends.append([])
            ends[number].append((low, high))
            tracks.setdefault(c, {})[i] = number
    return tracks


class _Way(NamedTuple):
    """The sides at which an arrow begins and ends, and where it passes between layers."""

    out: str
    """'top', 'bottom', 'left' or 'right'."""
    into: str
    passes: Sequence[tuple[int, float]] = ()
    """The layers that it passes, each with the position."""


def routes_of(picture: Picture) -> list[Route]:
    """The route of each arrow."""
    ends: dict[tuple[int, int], tuple[Box, Box]] = {}
    """The leftmost and the rightmost box of each layer in each column."""
    for box in sorted(picture.boxes, key=lambda box: box.x):
        ends[box.layer, box.column] = ends.get((box.layer, box.column), (box, box))[0], box
    _straighten(picture)
    ways = [_way(picture, arrow, ends) for arrow in picture.arrows]
    ports = _ports(picture, ways)
    return [_route(picture, *planned) for planned in zip(picture.arrows, ways, ports, strict=True)]


def _way(picture: Picture, arrow: tuple[int, int], ends: Mapping[tuple[int, int], tuple[Box, Box]]) -> _Way:
    source, target = [picture.boxes[i] for i in arrow]
    here, there = source.layer, target.layer
    step = 1 if there > here else -1
    sides = ("bottom", "top") if step > 0 else ("top", "bottom")
    between = range(here + step, there, step)
    if source.column == target.column:
        if here != there:
            return _Way(*sides, [(n, picture.points[arrow[0], n]) for n in between])
        return _Way("bottom", "bottom")
    forwards = source.column < target.column
    track = picture.tracks.get((arrow[0], _track(source, target)), 0.0)
    is_free = ends[here, source.column][forwards] is source and ends[there, target.column][not forwards] is target
    if is_free and abs(source.column - target.column) == 1:
        return _Way(*(_SIDEWAYS[::-1] if forwards else _SIDEWAYS), [(-1, track)] if here != there else [])
    return _Way(*sides, [(n, track) for n in between]) if here != there else _Way("bottom", "bottom")


def _straighten(picture: Picture) -> None:
    """Move arrows to a straight line if there is room for one nearby.

    All arrows of a box in the same direction share their points, so they are moved together.
    """
    boxes, points = picture.boxes, picture.points
    occupants: dict[int, list[tuple[float, float]]] = {}
    """The centre and the half width of each box, by layer."""
    for box in boxes:
        occupants.setdefault(box.layer, []).append((box.x, box.width / 2))
    farthest: dict[tuple[int, bool], int] = {}
    for source, target in picture.arrows:
        if boxes[source].column == boxes[target].column:
            begin, end = boxes[source].layer, boxes[target].layer
            last = farthest.setdefault((source, end > begin), target)
            if abs(end - begin) > abs(boxes[last].layer - begin):
                farthest[source, end > begin] = target
    passing: dict[int, list[int]] = {}
    """The boxes whose arrows pass each layer."""
    for source, n in points:
        passing.setdefault(n, []).append(source)
    for (source, downwards), target in farthest.items():
        here, there = boxes[source].layer, boxes[target].layer
        chain = range(here + 1, there) if downwards else range(there + 1, here)
        places = sorted([points[source, n] for n in chain])
        taken = [(x, half) for n in chain for x, half in occupants[n]]
        taken += [(points[other, n], 0.0) for n in chain for other in passing[n] if other != source]
        for x in (boxes[source].x, boxes[target].x, places[len(places) // 2]) if places else ():
            near = max(x - places[0], places[-1] - x) <= _NEAR
            if near and all([abs(x - other) >= half + _CLEAR for other, half in taken]):
                points.update({(source, n): x for n in chain})
                break


def _ports(picture: Picture, ways: Sequence[_Way]) -> list[list[float]]:
    """For each arrow, the offsets of its begin and end from the middle of a side; arrows leave a side at one point."""
    boxes = picture.boxes
    sides: dict[tuple[int, str], dict[object, list[tuple[float, int, int]]]] = {}
    """For each side of a box, the arrows that share a point: where each comes from, its number, and which end it is."""
    for n, ((source, target), way) in enumerate(zip(picture.arrows, ways, strict=True)):
        for end, (box, other, side) in enumerate(((source, target, way.out), (target, source, way.into))):
            passed = way.passes[-end][1] if way.passes else boxes[other].x
            near = boxes[other].y if side in _SIDEWAYS else passed
            sides.setdefault((box, side), {}).setdefault(n if end else "out", []).append((near, n, end))
    offsets = [[0.0, 0.0] for _ in ways]
    for (box, side), ends in sides.items():
        room = (boxes[box].height if side in _SIDEWAYS else boxes[box].width) - 14
        space = min(_PORT, room / max(len(ends) - 1, 1))
        order = sorted(ends.values(), key=lambda shared: (_mean([x for x, _, _ in shared]), shared[0][1:]))
        for k, shared in enumerate(order):
            for _, n, end in shared:
                offsets[n][end] = (k - (len(ends) - 1) / 2) * space
    return offsets


def _mean(values: Sequence[float]) -> float:
    mean = 0.0
    for count, value in enumerate(values, 1):
        mean += (value - mean) / count
    return mean


def _route(picture: Picture, arrow: tuple[int, int], way: _Way, port: Sequence[float]) -> Route:
    source, target = [picture.boxes[i] for i in arrow]
    (x0, y0), (x1, y1) = _end(source, way.out, port[0]), _end(target, way.into, port[1])
    heading, top, bottom = _HEADINGS[way.into], picture.top, picture.bottom
    if way.out in _SIDEWAYS:
        if way.passes or abs(y0 - y1) >= 3:
            x = way.passes[0][1] if way.passes else (x0 + x1) / 2
            return Route("straight", ((x0, y0), (x, y0), (x, y1), (x1, y1)), heading)
        return Route("straight", ((x0, y0), (x1, y0)), heading)
    if source.layer == target.layer:
        low = bottom[source.layer]
        return Route("below", ((x0, y0), (x0, low), (x1, low), (x1, y1)), heading)
    if not way.passes and abs(x0 - x1) < _SMALL:
        x0 = x1 = (x0 + x1) / 2
    enter, leave = (top, bottom) if way.out == "bottom" else (bottom, top)
    passed = [(x, edge[n]) for n, x in way.passes for edge in (enter, leave)]
    return Route("curved", ((x0, y0), (x0, leave[source.layer]), *passed, (x1, enter[target.layer]), (x1, y1)), heading)


def _end(box: Box, side: str, offset: float) -> Point:
    if side in _SIDEWAYS:
        return box.x + box.width / 2 * (1 if side == "right" else -1), box.y + offset
    return box.x + offset, box.y + box.height / 2 * (1 if side == "bottom" else -1)
