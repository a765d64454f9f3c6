"""SVG as text: elements with escaped attributes and texts, and estimated text widths."""

from __future__ import annotations

import html
import itertools
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence

FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
"""Helvetica and fonts with the same widths come first."""
_WIDTHS = (
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556, 556, 556,
    556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833,
    722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556,
    556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334,
    260, 334, 584,
)  # fmt: skip
"""The widths in Helvetica of printable ASCII characters, space to tilde, in thousandths of the font size."""
_OTHERS, _WIDE = 600, 1000
"""The widths of other characters, and of East Asian wide characters, which include emoji."""
_BOLD = 1.07
"""The ratio of the widths of bold and normal text."""


def text_width(text: str, size: float, bold: bool = False) -> float:
    """The approximate width of a text at a font size; SVG fits the text to it in any font."""
    units = 0
    for character in text:
        code = ord(character)
        if 32 <= code < 127:
            units += _WIDTHS[code - 32]
        elif unicodedata.category(character) not in ("Mn", "Me", "Cf"):
            units += _WIDE if unicodedata.east_asian_width(character) in "WF" else _OTHERS
    return units * size / 1000 * (_BOLD if bold else 1.0)


def shortened(text: str, size: float, width: float, bold: bool = False) -> str:
    """The text, or its ends with an ellipsis between them so that it fits."""
    text = " ".join(text[:1000].split())
    if text_width(text, size, bold) <= width:
        return text
    low, high = 0, len(text)  # `low` characters fit, more than `high` do not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if text_width(_cut(text, middle), size, bold) <= width else (low, middle)
    return _cut(text, low)


def _cut(text: str, most: int) -> str:
    """The beginning and the end of a text, together `kept` characters, around an ellipsis."""
    end = most // 2
    return f"{text[: most - end].rstrip()}…{text[len(text) - end :].lstrip()}"


_NO_CHARACTERS = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]"
)
"""Characters that XML 1.0 does not allow, and controls that change the writing direction."""


def escaped(text: str) -> str:
    """The text escaped for XML, between tags or in an attribute. Characters that XML cannot express become U+FFFD."""
    return html.escape(_NO_CHARACTERS.sub("\ufffd", text)).replace("&#x27;", "&#39;")


def number(value: float) -> str:
    """A coordinate in as few characters as possible, the same on each machine."""
    text = f"{round(value, 1):.1f}"
    text = text.removesuffix(".0")
    return "0" if text == "-0" else text


def element(name: str, *children: str, **attributes: object) -> str:
    """An XML element. `None` omits an attribute; underscores in names stand for hyphens, and a final one is dropped.

    Args:
        name: The name of the element.
        children: Its contents as SVG; texts must be escaped.
        attributes: Numbers and texts, which are escaped here.
    """
    written = []
    for key, value in attributes.items():
        if value is not None:
            shown = number(value) if isinstance(value, int | float) else escaped(str(value))
            written.append(f' {key.rstrip("_").replace("_", "-")}="{shown}"')
    start = f"<{name}{''.join(written)}"
    return f"{start}>{''.join(children)}</{name}>" if children else f"{start}/>"


def svg_text(text: str, x: float, y: float, size: float, bold: bool = False, **attributes: object) -> str:
    """A text element, which SVG fits to the estimated width in wider or narrower fonts."""
    width = text_width(text, size, bold)
    return element(
        "text", escaped(text), x=x, y=y, font_size=size, font_weight="600" if bold else None,
        textLength=width if width else None, lengthAdjust="spacingAndGlyphs" if width else None, **attributes,
    )  # fmt: skip


Point = tuple[float, float]


def rounded_path(points: Sequence[Point], radius: float) -> str:
    """A path of straight lines from point to point, with rounded corners."""
    written = [f"M{_at(points[0])}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        cut = min(radius, math.dist(before, corner) / 2, math.dist(corner, after) / 2)
        written.append(f"L{_at(_towards(corner, before, cut))}Q{_at(corner)} {_at(_towards(corner, after, cut))}")
    written.append(f"L{_at(points[-1])}")
    return "".join(written)


def outline(spans: Sequence[tuple[float, float, float, float]], radius: float) -> str:
    """The closed path around rectangles (left, top, right, bottom), each below the one before, with rounded corners."""
    right: list[Point] = []
    left: list[Point] = []
    for n, (x0, y0, x1, y1) in enumerate(spans):
        above = (spans[n - 1][3] + y0) / 2 if n else y0
        below = (y1 + spans[n + 1][1]) / 2 if n + 1 < len(spans) else y1
        right += [(x1, above), (x1, below)]
        left += [(x0, above), (x0, below)]
    corners = _without_bends([*right, *left[::-1]])
    (x, y), second = corners[0], corners[1]
    begin = (x + second[0]) / 2, (y + second[1]) / 2
    return rounded_path([begin, *corners[1:], corners[0], begin], radius) + "Z"


def _without_bends(corners: Sequence[Point]) -> list[Point]:
    """The corners at which a closed path turns."""
    count = len(corners)
    return [
        corner for n, corner in enumerate(corners)
        if not (corners[n - 1][0] == corner[0] == corners[(n + 1) % count][0])
    ]  # fmt: skip


def curved_path(points: Sequence[Point]) -> str:
    """The path of a curve that is vertical at each point, and straight between points above each other."""
    written = [f"M{_at(points[0])}"]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if abs(x0 - x1) < 0.05:
            written.append(f"L{_at((x1, y1))}")
        else:
            middle = (y0 + y1) / 2
            written.append(f"C{_at((x0, middle))} {_at((x1, middle))} {_at((x1, y1))}")
    return "".join(written)


def polygon(points: Iterable[Point]) -> str:
    """A closed path."""
    return "M" + "L".join([_at(point) for point in points]) + "Z"


def _at(point: Point) -> str:
    return f"{number(point[0])} {number(point[1])}"


def _towards(start: Point, end: Point, length: float) -> Point:
    """The point at a distance from `start` on the way to `end`."""
    distance = math.dist(start, end)
    share = length / distance if distance else 0.0
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share
