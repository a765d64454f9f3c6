"""`nn.draw`: a graph as an SVG picture, for papers and notebooks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...extend import Variable, coerced, did_you_mean, functions_of, variables
from ...files.replacing import checked_ending, write_whole
from ..description import describe
from .draw_contents import Box, Choices, Frame, Picture, Route, contents_of
from .draw_layout import CAPTION, LINE, MARGIN, NOTE, TITLE, body_top, lay_out
from .initial_view import SMALL
from .svg import (
    FONT,
    Point,
    curved_path,
    element,
    escaped,
    outline,
    polygon,
    rounded_path,
    shortened,
    svg_text,
    text_width,
)  # fmt: skip


class Tone(NamedTuple):
    """The colours of an order of differentiation."""

    fill: str
    line: str
    band: str
    """The background of the column."""


class Style(NamedTuple):
    """The style of a drawing."""

    background: str
    text: str
    faint: str
    """The colour of notes, and of arrows between orders."""
    leaf: str
    frame: str
    tones: tuple[Tone, ...]
    """The tones of the orders of differentiation; higher orders start over with the second tone."""

    def tone(self, order: int) -> Tone:
        """The colours of an order."""
        return self.tones[order if order < len(self.tones) else 1 + (order - 1) % (len(self.tones) - 1)]


STYLES = {
    "light": Style(
        "#ffffff", "#1c2733", "#6a7683", "#f4f5f7", "#a9b2bc",
        (
            Tone("#e3edf8", "#2f6db5", "#f7fafd"), Tone("#fce8d8", "#c4631c", "#fefaf6"),
            Tone("#e1f2e5", "#2f8a4b", "#f7fcf8"), Tone("#f1e4f6", "#8a4aa3", "#fcf8fd"),
            Tone("#fbf1cf", "#98790f", "#fefcf3"), Tone("#dff3f3", "#1f8288", "#f6fcfc"),
        ),
    ),
    "dark": Style(
        "#14181d", "#e8ecf1", "#97a3b0", "#252b33", "#56616d",
        (
            Tone("#1f3550", "#6ca8ec", "#171d25"), Tone("#4a2f1a", "#ee9a55", "#1f1a17"),
            Tone("#1d3d28", "#68c586", "#171f1a"), Tone("#3d2648", "#c68ade", "#1d1920"),
            Tone("#403613", "#d9b93c", "#1e1c15"), Tone("#153b3d", "#55bfc5", "#151e1f"),
        ),
    ),
}  # fmt: skip
"""The styles by name."""

MOST = 400
"""The maximum number of boxes in a drawing; larger graphs need another view."""
_INSTEAD = "nn.draw writes SVG, which Inkscape and CairoSVG convert to PDF and PNG"
"""What is said of paths of other files."""


class Drawing(NamedTuple):
    """A picture of a graph, which notebooks display."""

    svg: str
    """The content of an SVG file."""
    width: float
    """In pixels, like all lengths in the picture."""
    height: float

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Drawing of {self.width:.0f} by {self.height:.0f} pixels>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file, atomically.

        Raises:
            TypeError: `path` is not a path.
            ValueError: The name does not end in '.svg'.
            OSError: The file cannot be written; the message names it.
        """
        write_whole(checked_ending(path, ".svg", _INSTEAD), self.svg.encode())


def draw(
    outputs: Variable | Iterable[Variable], path: str | os.PathLike[str] | None = None, *, style: str = "light",
    title: str = "", shapes: bool = True, arguments: bool = True, formulas: bool = False, fold: bool = True,
    parameters: Mapping[str, Variable] | None = None,
) -> Drawing:  # fmt: skip
    """Draw the graph that computes `outputs`: `nn.draw(outputs, "graph.svg")`.

    A box is a function; a box with round ends is a leaf or a constant. Columns are orders of differentiation: the graph
    that the user built on the left, its gradient beside it, and so on. A function of a gradient is beside the forward
    function that it comes from. Outputs have a thick border. The body of a loop or a branch is drawn within its box,
    and functions of one parameter scope are surrounded by a frame. Equal graphs give equal pictures. Nothing is run.

    Args:
        outputs: A Variable or Variables.
        path: A file whose name ends in '.svg', or None.
        style: 'light' or 'dark'.
        title: The title above the picture.
        shapes: Whether to show shapes and dtypes.
        arguments: Whether to show static arguments.
        formulas: Whether functions of a gradient show the formula of the rule that emitted them.
        fold: Whether to draw a graph of more than 60 functions with a single box for each module and for repetitions,
            like the initial view of `nn.view`.
        parameters: Names of unregistered parameters, as returned by `model.get_parameters()`.

    Returns:
        A `Drawing`, which notebooks display, with the text of the file as `svg`.

    Raises:
        TypeError: Something in `outputs` is not a Variable, `parameters` is not a dict of Variables by name, or another
            argument has the wrong type.
        ValueError: There is no such style, there are no outputs, more than 400 boxes would be drawn, or `path` does not
            end in '.svg'.
        OSError: The file cannot be written.
    """
    listed = variables(outputs, "outputs")
    if style not in STYLES:
        raise ValueError(f"style: must be one of {', '.join(STYLES)}, got {style!r}{did_you_mean(style, STYLES)}")
    if not isinstance(title, str):
        raise TypeError(f"title: expected a str, got {title!r}")
    for name, value in {"shapes": shapes, "arguments": arguments, "formulas": formulas, "fold": fold}.items():
        coerced(bool, value, name)
    if path is not None:
        checked_ending(path, ".svg", _INSTEAD)
    count = len(functions_of(listed))
    if count > MOST and not fold:
        raise ValueError(f"outputs: the graph has {count:,} functions, but a picture shows at most {MOST}; "
                         "draw it folded, draw a part of it, or look at it with nn.view(outputs)")
    picture = contents_of(describe(listed, parameters), Choices(shapes, arguments, formulas), fold and count > SMALL)
    if len(picture.boxes) > MOST:
        raise ValueError(f"outputs: the folded graph has {len(picture.boxes):,} boxes, but a picture shows at most "
                         f"{MOST}; draw a part of it, or look at it with nn.view(outputs)")
    lay_out(picture, headers=len({box.order for box in picture.boxes}) > 1)
    drawing = _drawn(picture, STYLES[style], title)
    if path is not None:
        drawing.save(path)
    return drawing


def _drawn(picture: Picture, style: Style, title: str) -> Drawing:
    above = 30.0 if title else 0.0
    width = max(picture.width, text_width(title, 15, bold=True) + 2 * MARGIN)
    height = picture.height + above
    painted = _painted(picture, style)
    body = element("g", _columns(picture, style), painted, transform=f"translate(0 {above:g})" if above else None)
    if title:
        body = svg_text(title, MARGIN, 22.0, 15, bold=True, fill=style.text) + body
    content = (f"<title>{escaped(title or 'Graph')}</title>"
               + element("rect", width=width, height=height, fill=style.background) + body)
    svg = element("svg", content, xmlns="http://www.w3.org/2000/svg", width=width, height=height,
                  viewBox=f"0 0 {width:.1f} {height:.1f}", font_family=FONT, role="img")  # fmt: skip
    return Drawing(svg + "\n", round(width, 1), round(height, 1))


_ORDINALS = {0: "forward", 1: "gradient", 2: "2nd derivatives", 3: "3rd derivatives"}


def _columns(picture: Picture, style: Style) -> str:
    """The backgrounds of the columns, and their titles."""
    if len(picture.columns) < 2:
        return ""
    parts = []
    for order, left, right in picture.columns:
        tone = style.tone(order)
        parts.append(element("rect", x=left, y=MARGIN / 2, width=right - left, height=picture.height - MARGIN, rx=8,
                             fill=tone.band))  # fmt: skip
        name = _ORDINALS.get(order, f"{order}th derivatives")
        parts.append(svg_text(name, (left + right) / 2, MARGIN / 2 + 17, 11, bold=True, fill=tone.line,
                              text_anchor="middle"))  # fmt: skip
    return "".join(parts)


def _painted(picture: Picture, style: Style) -> str:
    """Frames, arrows and boxes."""
    boxes = picture.boxes
    below, above = [], []
    for (source, target), route in zip(picture.arrows, picture.routes, strict=True):
        begin, end = boxes[source].order, boxes[target].order
        if picture.by_order and begin != end:  # below the others
            below.append(_arrow(route, style.faint, 0.9))
        else:
            above.append(_arrow(route, style.tone(max(begin, end)).line, 1.2))
    frames = [_frame(frame, style) for frame in picture.frames]
    return "".join([*frames, *below, *above, *[_box(box, style) for box in boxes]])


def _frame(frame: Frame, style: Style) -> str:
    shape = element("path", d=outline(frame.spans, 7), fill=style.tone(frame.order).fill, fill_opacity=0.35,
                    stroke=style.frame, stroke_width=0.8, stroke_dasharray="4 3")  # fmt: skip
    left, top, right, _ = frame.spans[0]
    name = shortened(frame.title, 8.5, max(right - left, 60))
    full = f"<title>{escaped(frame.title)}</title>"
    return element("g", full, shape, svg_text(name, left + 2, top - 3, 8.5, fill=style.faint))


def _arrow(route: Route, colour: str, thick: float) -> str:
    points, length = list(route.points), 6.0
    tip = points[-1]
    points[-1] = tip[0] - route.heading[0] * (length - 1), tip[1] - route.heading[1] * (length - 1)
    if route.kind == "straight":
        path = rounded_path(points, 7)
    elif route.kind == "below":
        (x0, y0), (_, low), (x1, _), last = points
        deep = low + 16
        path = (f"M{x0:.1f} {y0:.1f}L{x0:.1f} {low:.1f}C{x0:.1f} {deep:.1f} {x1:.1f} {deep:.1f} {x1:.1f} {low:.1f}"
                f"L{x1:.1f} {last[1]:.1f}")  # fmt: skip
    else:
        path = curved_path(points)
    line = element("path", d=path, fill="none", stroke=colour, stroke_width=thick)
    return line + element("path", d=_head(tip, route.heading, length), fill=colour)


def _box(box: Box, style: Style) -> str:
    x, top, left = box.x, box.y - box.height / 2, box.x - box.width / 2
    tone = style.tone(box.order)
    is_round, is_edge, is_leaf = box.kind != "function", box.kind in ("input", "output"), box.kind == "leaf"
    fill = style.leaf if is_leaf or is_edge else tone.fill
    stroke = style.frame if is_edge else style.faint if is_leaf else tone.line
    rx = min(box.height / 2, 14) if is_round else 4
    shape = {"x": left, "y": top, "width": box.width, "height": box.height, "rx": rx}
    thick = 2.2 if box.is_result else 1.0
    parts = [f"<title>{escaped(box.full[:2000])}</title>"]
    dashes = "3 2" if box.kind == "constant" else None
    parts.append(element("rect", **shape, fill=fill, stroke=stroke, stroke_width=thick, stroke_dasharray=dashes))
    parts.append(svg_text(box.title, x, top + 15, TITLE, bold=not is_round, fill=style.text, text_anchor="middle",
                          font_style="italic" if is_round else None))  # fmt: skip
    for n, note in enumerate(box.notes):
        parts.append(svg_text(note, x, top + 27 + LINE * n, NOTE, fill=style.faint, text_anchor="middle"))
    below = top + body_top(box)
    for caption, body in box.bodies:
        begin = x - body.width / 2
        parts.append(svg_text(caption, left + 10, below + CAPTION, CAPTION, fill=tone.line))
        below += CAPTION + 6
        parts.append(element("rect", x=begin, y=below, width=body.width, height=body.height, rx=5,
                             fill=style.background, stroke=style.frame, stroke_width=0.6))  # fmt: skip
        parts.append(element("g", _painted(body, style), transform=f"translate({begin:.1f} {below:.1f})"))
        below += body.height + 10
    return element("g", *parts)


def _head(tip: Point, heading: Point, length: float) -> str:
    """The triangle at the end of an arrow."""
    x, y = tip[0] - heading[0] * length, tip[1] - heading[1] * length
    across_x, across_y = -heading[1] * length * 0.42, heading[0] * length * 0.42
    return polygon([tip, (x + across_x, y + across_y), (x - across_x, y - across_y)])
