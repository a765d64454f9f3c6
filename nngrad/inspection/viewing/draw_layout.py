"""The layout of a drawing: boxes that do not overlap, arrows that cross no box, columns, and frames of scopes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..naming import common_path
from .draw_contents import Box, Frame, Picture
from .draw_routes import routes_of, tracks_of
from .layers import Link, Thing, column_centres, layers_of
from .svg import shortened, text_width

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


def lay_out(picture: Picture, headers: bool) -> None:
    """Set the coordinates of everything in a picture and in nested ones; recursion is as deep as loops are nested.

    Args:
        picture: The picture.
        headers: Whether columns have titles.
    """
    for box in picture.boxes:
        for _, body in box.bodies:
            lay_out(body, False)
        box.title = shortened(box.title, TITLE, _WIDEST, bold=True)
        box.notes = [shortened(note, NOTE, _WIDEST) for note in box.notes]
        width = label_width(box)
        if box.bodies:
            box.width = max(width, *[body.width for _, body in box.bodies]) + 2 * _INNER
            box.height = body_top(box) + sum([CAPTION + 6 + body.height + _INNER for _, body in box.bodies])
        else:
            box.width = max(width + (26 if box.kind != "function" else 18), 42.0)
            box.height = 22.0 + LINE * len(box.notes)
    _put_in_layers(picture)
    _across(picture)
    _down(picture, MARGIN + HEADER * headers)
    picture.routes = routes_of(picture)
    picture.frames = list(_frames(picture))
    picture.width = max([right for _, _, right in picture.columns], default=0.0) + MARGIN
    picture.height = picture.bottom[-1] + MARGIN + _GAP * any([route.kind == "below" for route in picture.routes]) / 2


def label_width(box: Box) -> float:
    """The width of a box's text."""
    return max([text_width(box.title, TITLE, bold=True), *[text_width(note, NOTE) for note in box.notes]])


def body_top(box: Box) -> float:
    """The offset of a box's first body from its top edge."""
    return 24.0 + LINE * len(box.notes)


def _put_in_layers(picture: Picture) -> None:
    """The layers and columns of boxes; leaves lie before their leftmost reader, which has the same column."""
    boxes = picture.boxes
    orders = sorted({box.order for box in boxes}) if picture.by_order else [0]
    picture.columns = [(order, 0.0, 0.0) for order in orders]
    readers: list[list[int]] = [[] for _ in boxes]
    operands: list[list[tuple[int, int]]] = [[] for _ in boxes]
    for source, target in picture.arrows:
        readers[source].append(target)
        operands[target].append((source, target))
    for box in boxes:
        box.column = orders.index(box.order) if picture.by_order else 0
    floating = [i for i, box in enumerate(boxes) if box.kind in ("leaf", "constant") and readers[i]]
    at = {i: (box.row, box.column) for i, box in enumerate(boxes)}
    for i in floating:
        del at[i]
    layer, upwards = layers_of(at, operands)
    for i in reversed(floating):  # readers come after their operands
        first = min(readers[i], key=lambda r: (boxes[r].column, layer[r]))
        boxes[i].column = boxes[first].column
        layer[i] = layer[first] + (1 if at.get(first) in upwards else -1)
    number = {n: k for k, n in enumerate(sorted(set(layer.values())))}
    for i, box in enumerate(boxes):
        box.layer = number[layer[i]]


def _across(picture: Picture) -> None:
    """Set horizontal positions: of boxes, of points of arrows, of tracks between columns, and of the columns."""
    boxes = picture.boxes
    tracks = tracks_of(picture)
    left = MARGIN
    for c, (order, _, _) in enumerate(picture.columns):
        members = [i for i, box in enumerate(boxes) if box.column == c]
        number = {i: n for n, i in enumerate(members)}
        leanings = [0.0] * len(members)
        passed: dict[tuple[int, int], int] = {}
        """The points of arrows, by source box and layer."""
        links: dict[Link, None] = {}
        for source, target in picture.arrows:
            if boxes[source].column != c or boxes[target].column != c:
                for one, other in ((source, target), (target, source)):
                    if boxes[one].column == c:
                        leanings[number[one]] += 1.0 if boxes[other].column > c else -1.0
                continue
            begin, end = boxes[source].layer, boxes[target].layer
            step = 1 if end > begin else -1
            before = number[source]
            for n in range(begin + step, end + step, step):
                here = number[target] if n == end else passed.setdefault((source, n), len(members) + len(passed))
                weight = 1.0 + 2.0 * (before >= len(members)) + 2.0 * (here >= len(members))
                links[Link(before, here, weight) if step > 0 else Link(here, before, weight)] = None
                before = here
        things = [
            Thing(box.layer, box.width / 2, box.width / 2, _SPACE, max(-1.0, min(1.0, leaning)), box.scope)
            for box, leaning in zip([boxes[i] for i in members], leanings, strict=True)
        ] + [Thing(n, 1.0, 1.0, _TRACK) for _, n in passed]
        centres = column_centres(things, list(links))
        begin_x = left + _INNER
        for i, n in number.items():
            boxes[i].x = begin_x + centres[n]
        picture.points.update({key: begin_x + centres[n] for key, n in passed.items()})
        right = begin_x + max([x + thing.right for x, thing in zip(centres, things, strict=True)]) + _INNER
        picture.columns[c] = order, left, right
        here_tracks = tracks.get(c, {})
        picture.tracks.update({(source, c): right + _TRACK * (n + 1.5) for source, n in here_tracks.items()})
        left = right + _TRACK * (2 + 1 + max(here_tracks.values(), default=0))


def _down(picture: Picture, begin: float) -> None:
    """Set vertical positions; layers are further apart if arrows between them go far sideways."""
    boxes = picture.boxes
    count = 1 + max([box.layer for box in boxes])
    tallest, gaps = [0.0] * count, [_GAP] * count
    for box in boxes:
        tallest[box.layer] = max(tallest[box.layer], box.height)
    for source, target in [(boxes[a], boxes[b]) for a, b in picture.arrows]:
        upper, lower = sorted((source.layer, target.layer))
        apart = abs(source.column - target.column)
        if (upper == lower and apart > 1) or (upper != lower and not apart):
            wide = min(_MOST_GAP, _GAP + 0.09 * max(0.0, abs(source.x - target.x) - 60))
            for n in (upper, max(lower - 1, 0)):
                gaps[n] = max(gaps[n], wide)
    for height, gap in zip(tallest, gaps, strict=True):
        picture.top.append(begin)
        picture.bottom.append(begin + height)
        begin += height + gap
    for box in boxes:
        box.y = (picture.top[box.layer] + picture.bottom[box.layer]) / 2


# ---------------------------------------------------------------- frames


def _frames(picture: Picture) -> Iterator[Frame]:
    """The frames of scopes with parameters, around adjacent boxes in consecutive layers. Titles omit the prefix that
    all scopes share."""
    boxes = picture.boxes
    named = {box.scope for box in boxes if box.kind == "leaf" and box.scope}
    common = len(common_path([tuple(scope.split("/")[:-1]) for scope in named]))
    scopes: dict[tuple[str, int], dict[int, None]] = {}
    """The layers of each scope and column."""
    in_layer: dict[tuple[int, int], list[Box]] = {}
    for box in sorted(boxes, key=lambda box: box.x):
        in_layer.setdefault((box.layer, box.column), []).append(box)
        if box.scope in named:
            scopes.setdefault((box.scope, box.column), {})[box.layer] = None
    for (scope, column), layers in sorted(scopes.items()):
        for run in _runs(scope, column, sorted(layers), in_layer):
            if sum(map(len, run)) > 1:
                spans = []
                for row in run:
                    left, right = _edges(row)
                    top, bottom = min([b.y - b.height / 2 for b in row]), max([b.y + b.height / 2 for b in row])
                    spans.append((left - _ROOM, top - _ROOM, right + _ROOM, bottom + _ROOM))
                yield Frame(spans, "/".join(scope.split("/")[common:]), picture.columns[column][0])


def _runs(
    scope: str, column: int, layers: Sequence[int], in_layer: Mapping[tuple[int, int], Sequence[Box]]
) -> list[list[list[Box]]]:
    """Runs of a scope's boxes in consecutive layers that overlap horizontally and have no other boxes between them."""
    runs: list[list[list[Box]]] = []
    before = -2
    for n in layers:
        parts: list[list[Box]] = [[]]
        for box in in_layer[n, column]:
            if box.scope == scope:
                parts[-1].append(box)
            elif parts[-1]:
                parts.append([])
        for part in filter(None, parts):
            above = runs[-1][-1] if n == before + 1 else []
            edges = [_edges(row) for row in (part, above) if row]
            overlap = min([right for _, right in edges]) - max([left for left, _ in edges])
            if above and above[0].layer == before and overlap > _OVERLAP:
                runs[-1].append(part)
            else:
                runs.append([part])
        before = n
    return runs


def _edges(row: Sequence[Box]) -> tuple[float, float]:
    return min([box.x - box.width / 2 for box in row]), max([box.x + box.width / 2 for box in row])
