"""The layout of a drawing: boxes that do not overlap, arrows that cross no box, columns, and frames of scopes."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..naming import common_path
from .draw_contents import Box, DrawingContents
from .draw_routes import Places, Route, routes_of, tracks_of
from .layers import Link, Things, column_centres, layers_of
from .svg import shortened, text_width


class DrawingLayers(NamedTuple):
    """The positions of boxes in integers."""

    layer: tuple[int, ...]
    """The layer of each box, counted from the top."""
    column: tuple[int, ...]
    """The column of each box, counted from the left."""
    orders: tuple[int, ...]
    """The order of differentiation of each column."""


def _layers(contents: DrawingContents) -> DrawingLayers:
    """The layers and columns of boxes; leaves lie before their leftmost reader, which has the same column."""
    boxes, arrows, by_order = contents
    orders = sorted({box.order for box in boxes}) if by_order else [0]
    column = [orders.index(box.order) if by_order else 0 for box in boxes]
    readers: list[list[int]] = [[] for _ in boxes]
    operands: list[list[tuple[int, int]]] = [[] for _ in boxes]
    for source, target in arrows:
        readers[source].append(target)
        operands[target].append((source, target))
    floating = [i for i, box in enumerate(boxes) if box.kind in ("leaf", "constant") and readers[i]]
    at = {i: (box.row, column[i]) for i, box in enumerate(boxes)}
    for i in floating:
        del at[i]
    layer, upwards = layers_of(at, operands)
    for i in reversed(floating):  # readers come after their operands
        first = min(readers[i], key=lambda r: (column[r], layer[r]))
        column[i] = column[first]
        layer[i] = layer[first] + (1 if at.get(first) in upwards else -1)
    number = {n: k for k, n in enumerate(sorted(set(layer.values())))}
    return DrawingLayers(tuple([number[layer[i]] for i in range(len(boxes))]), tuple(column), tuple(orders))


TITLE, NOTE, CAPTION = 12.0, 9.0, 9.5
"""Font sizes."""
LINE = 12.0
"""The distance between lines of notes."""
MARGIN, HEADER = 14.0, 32.0
_WIDEST = 220.0
"""The maximum width of a label."""
_SPACE, _TRACK = 18.0, 9.0
"""Distances between boxes, and between parallel arrows."""
_GAP, _MOST_GAP = 26.0, 62.0
"""The smallest and the largest distance between layers."""
_INNER, _ROOM = 10.0, 6.0
"""Padding around a body, and inside a frame."""
_OVERLAP = 16.0
"""The minimum horizontal overlap of two layers within one frame."""


class BoxText(NamedTuple):
    """The text of a box, cut to fit."""

    title: str
    notes: tuple[str, ...]


class Frame(NamedTuple):
    """The frame around boxes of a scope in consecutive layers."""

    spans: tuple[tuple[float, float, float, float], ...]
    """Rectangles (left, top, right, bottom), one below the other."""
    title: str
    order: int


class DrawingLayout(NamedTuple):
    """The coordinates of everything in a drawing."""

    contents: DrawingContents
    lines: tuple[BoxText, ...]
    x: tuple[float, ...]
    """The horizontal centres of boxes."""
    y: tuple[float, ...]
    widths: tuple[float, ...]
    heights: tuple[float, ...]
    routes: tuple[Route, ...]
    """The route of each arrow."""
    columns: tuple[tuple[int, float, float], ...]
    """The order of differentiation, left edge and right edge of each column."""
    frames: tuple[Frame, ...]
    inner: tuple[tuple[DrawingLayout, ...], ...]
    """For each box, the drawings of its bodies, from top to bottom."""
    width: float
    height: float


def drawing_layout(contents: DrawingContents, headers: bool) -> DrawingLayout:
    """The layout of a drawing and of nested ones; recursion is as deep as loops are nested.

    Args:
        contents: The contents of the drawing.
        headers: Whether columns have titles.
    """
    boxes = contents.boxes
    layers = _layers(contents)
    inner = [tuple([drawing_layout(body, False) for _, body in box.bodies]) for box in boxes]
    lines = [_lines(box) for box in boxes]
    sizes = [_size(box, texts, within) for box, texts, within in zip(boxes, lines, inner, strict=True)]
    widths, heights = [w for w, _ in sizes], [h for _, h in sizes]
    x, points, tracks, columns = _across(contents, layers, widths)
    top, bottom = _down(contents, layers, x, heights, MARGIN + HEADER * headers)
    y = [(top[n] + bottom[n]) / 2 for n in layers.layer]
    placed = Places(x, y, widths, heights, layers.layer, layers.column, top, bottom, points, tracks)
    routes = routes_of(contents.arrows, placed)
    frames = _frames(boxes, layers, placed)
    width = max([right for _, _, right in columns], default=0.0) + MARGIN
    height = (bottom[-1] if bottom else 0.0) + MARGIN + _GAP * any([route.kind == "below" for route in routes]) / 2
    return DrawingLayout(contents, tuple(lines), tuple(x), tuple(y), tuple(widths), tuple(heights), tuple(routes),
                  tuple(columns), tuple(frames), tuple(inner), width, height)  # fmt: skip


def _lines(box: Box) -> BoxText:
    notes = tuple([shortened(note, NOTE, _WIDEST) for note in box.notes])
    return BoxText(shortened(box.title, TITLE, _WIDEST, bold=True), notes)


def _size(box: Box, lines: BoxText, inner: Sequence[DrawingLayout]) -> tuple[float, float]:
    width = max([text_width(lines.title, TITLE, bold=True), *[text_width(note, NOTE) for note in lines.notes]])
    if inner:
        width = max(width, *[each.width for each in inner])
        return width + 2 * _INNER, body_top(lines) + sum([CAPTION + 6 + each.height + _INNER for each in inner])
    return max(width + (26 if box.kind != "function" else 18), 42.0), 22.0 + LINE * len(lines.notes)


def body_top(lines: BoxText) -> float:
    """The offset of a box's first body from its top edge."""
    return 24.0 + LINE * len(lines.notes)


# ---------------------------------------------------------------- from left to right


def _across(
    contents: DrawingContents, layers: DrawingLayers, widths: Sequence[float]
) -> tuple[list[float], dict[tuple[int, int], float], dict[tuple[int, int], float], list[tuple[int, float, float]]]:
    """Horizontal positions: of the centres of boxes; of arrow points, by source box and layer; of tracks between
    columns, by source box; and of the columns."""
    boxes, arrows, _ = contents
    layer, column, orders = layers
    x = [0.0] * len(boxes)
    points: dict[tuple[int, int], float] = {}
    in_tracks: dict[tuple[int, int], float] = {}
    columns: list[tuple[int, float, float]] = []
    tracks = tracks_of(arrows, layer, column)
    left = MARGIN
    for c in range(len(orders)):
        members = [i for i in range(len(boxes)) if column[i] == c]
        number = {i: n for n, i in enumerate(members)}
        halves = [widths[i] / 2 for i in members]
        things = Things([layer[i] for i in members], halves, halves[:], [_SPACE] * len(members))
        leanings, keys = [0.0] * len(members), [boxes[i].scope for i in members]
        at: dict[tuple[int, int], int] = {}
        links: list[Link] = []
        for source, target in arrows:
            if column[source] != c or column[target] != c:
                for one, other in ((source, target), (target, source)):
                    if column[one] == c:
                        leanings[number[one]] += 1.0 if column[other] > c else -1.0
                continue
            step = 1 if layer[target] > layer[source] else -1
            before = number[source]
            for n in range(layer[source] + step, layer[target] + step, step):
                last = n == layer[target]
                if not last and (source, n) not in at:
                    at[source, n] = len(things.layer)
                    things.layer.append(n)
                    things.left.append(1.0)
                    things.right.append(1.0)
                    things.space.append(_TRACK)
                    leanings.append(0.0)
                    keys.append("")
                here = number[target] if last else at[source, n]
                weight = 1.0 + 2.0 * (before >= len(members)) + 2.0 * (here >= len(members))
                links.append(Link(before, here, weight) if step > 0 else Link(here, before, weight))
                before = here
        links = list(dict.fromkeys(links))
        leanings = [max(-1.0, min(1.0, value)) for value in leanings]
        centres = column_centres(things, links, leanings, keys)
        begin = left + _INNER
        for i, n in number.items():
            x[i] = begin + centres[n]
        points.update({key: begin + centres[n] for key, n in at.items()})
        right = begin + max(map(operator.add, centres, things.right)) + _INNER
        columns.append((orders[c], left, right))
        here_tracks = tracks.get(c, {})
        for source, n in here_tracks.items():
            in_tracks[source, c] = right + _TRACK * (n + 1.5)
        left = right + _TRACK * (2 + 1 + max(here_tracks.values(), default=0))
    return x, points, in_tracks, columns


# ---------------------------------------------------------------- from top to bottom


def _down(
    contents: DrawingContents, layers: DrawingLayers, x: Sequence[float], heights: Sequence[float], begin: float
) -> tuple[list[float], list[float]]:
    """The upper and lower edge of each layer; layers are further apart if arrows between them go far sideways."""
    layer = layers.layer
    count = 1 + max(layer, default=-1)
    tallest = [0.0] * count
    for n, height in zip(layer, heights, strict=True):
        tallest[n] = max(tallest[n], height)
    gaps = [_GAP] * count
    for source, target in contents.arrows:
        upper, lower = sorted((layer[source], layer[target]))
        wide = min(_MOST_GAP, _GAP + 0.09 * max(0.0, abs(x[source] - x[target]) - 60))
        if upper == lower and abs(layers.column[source] - layers.column[target]) <= 1:
            continue
        if upper == lower or layers.column[source] == layers.column[target]:
            gaps[upper] = max(gaps[upper], wide)
            gaps[max(lower - 1, 0)] = max(gaps[max(lower - 1, 0)], wide)
    top, bottom = [], []
    for height, gap in zip(tallest, gaps, strict=True):
        top.append(begin)
        bottom.append(begin + height)
        begin += height + gap
    return top, bottom


# ---------------------------------------------------------------- frames


def _frames(boxes: Sequence[Box], layers: DrawingLayers, placed: Places) -> list[Frame]:
    """The frames of scopes with parameters, around adjacent boxes in consecutive layers. Titles omit the prefix that
    all scopes share."""
    named = {box.scope for box in boxes if box.kind == "leaf" and box.scope}
    common = len(common_path([tuple(scope.split("/")[:-1]) for scope in named]))
    scopes: dict[tuple[str, int], list[int]] = {}
    in_layer: dict[tuple[int, int], list[int]] = {}
    for i in sorted(range(len(boxes)), key=lambda i: placed.x[i]):
        in_layer.setdefault((layers.layer[i], layers.column[i]), []).append(i)
        if boxes[i].scope in named:
            scopes.setdefault((boxes[i].scope, layers.column[i]), []).append(i)
    frames: list[Frame] = []
    for (scope, column), members in sorted(scopes.items()):
        title = "/".join(scope.split("/")[common:])
        for run in _runs(set(members), column, layers, in_layer, placed):
            if sum(map(len, run)) > 1:
                frames.append(Frame(_spans(run, placed), title, layers.orders[column]))
    return frames


def _runs(
    members: set[int], column: int, layers: DrawingLayers, in_layer: Mapping[tuple[int, int], Sequence[int]],
    placed: Places,
) -> list[list[list[int]]]:  # fmt: skip
    """Runs of members in consecutive layers that overlap horizontally and have no other boxes between them."""
    runs: list[list[list[int]]] = []
    before = -2
    for n in sorted({layers.layer[i] for i in members}):
        parts: list[list[int]] = [[]]
        for i in in_layer[n, column]:
            if i in members:
                parts[-1].append(i)
            elif parts[-1]:
                parts.append([])
        for part in [part for part in parts if part]:
            above = runs[-1][-1] if n == before + 1 else []
            edges = [_edges(row, placed) for row in (part, above) if row]
            overlap = min([right for _, right in edges]) - max([left for left, _ in edges])
            if above and layers.layer[above[0]] == before and overlap > _OVERLAP:
                runs[-1].append(part)
            else:
                runs.append([part])
        before = n
    return runs


def _edges(row: Sequence[int], placed: Places) -> tuple[float, float]:
    return (min([placed.x[i] - placed.widths[i] / 2 for i in row]),
            max([placed.x[i] + placed.widths[i] / 2 for i in row]))  # fmt: skip


def _spans(run: Sequence[Sequence[int]], placed: Places) -> tuple[tuple[float, float, float, float], ...]:
    spans = []
    for row in run:
        left, right = _edges(row, placed)
        top = min([placed.y[i] - placed.heights[i] / 2 for i in row])
        bottom = max([placed.y[i] + placed.heights[i] / 2 for i in row])
        spans.append((left - _ROOM, top - _ROOM, right + _ROOM, bottom + _ROOM))
    return tuple(spans)
