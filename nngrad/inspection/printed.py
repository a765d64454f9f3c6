"""Lines of a listing as text of some width, for terminals, notebooks and files."""

from __future__ import annotations

import html
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..graph.arguments import checked_count

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

    from .lines import Line

_WIDEST = 72
"""Columns after which shapes are not lined up any more."""
_WIDEST_CELL = 32
"""The same for what other columns say."""
_NARROWEST = 20
"""Columns that may be asked for at the least."""
_ENOUGH = 48
"""Columns that a function itself has before others are shown."""
_NARROW = 16
"""Columns that it has in any case, and those below which shapes and orders are not cropped for its sake."""
_FIXED = 2
"""Columns that are not left out: shapes, and orders."""

ORDER_COLOURS = ("#1f77d0", "#c05a00", "#0f8a3c", "#a04fd0", "#d03a5a", "#00838f", "#8a7000", "#7a6a8a")
"""Colours of the orders of differentiation from the first on, which are told apart on white and on black alike."""
_TERMINAL_COLOURS = ("dodger_blue1", "dark_orange", "green3", "medium_orchid", "red1", "dark_cyan", "gold3", "grey62")


class Segment(NamedTuple):
    """Some text, and how it is set."""

    text: str
    style: str = ""
    """'op', 'dim', '+', '-', or the order of differentiation of what it names."""


class Printed:
    """What is shown as lines: as text, in colours on a terminal, and in a notebook."""

    @property
    def summary(self) -> str:
        """What is said below the lines."""
        return ""

    def _shown(self) -> tuple[Sequence[Line], Sequence[str]]:
        """The lines, and the marks in front of them, if there are any."""
        raise NotImplementedError

    def text(self, width: int | None = None) -> str:
        """The text in at most `width` columns; None for as many as it takes.

        Raises:
            ValueError: `width` is below 20.
        """
        lines, marks = self._shown()
        return "\n".join([*lines_of_text(lines, _checked_width(width), marks), *filter(None, [self.summary])])

    def __str__(self) -> str:
        return self.text(_width_of_output())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from rich_lines(*self._shown(), options.max_width)
        if self.summary:
            from rich.text import Text

            yield Text(self.summary)

    def _repr_html_(self) -> str:
        return html_of(*self._shown()) + (f"<div>{self.summary}</div>" if self.summary else "")


def _checked_width(width: Any) -> int | None:
    """A number of columns that a caller has given."""
    return None if width is None else checked_count(width, "width", _NARROWEST, " or None")


def _width_of_output() -> int | None:
    """The columns of the terminal that is printed to; None where it is none."""
    try:
        return max(20, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None
    except (AttributeError, ValueError):  # no standard output, or a closed one
        return None


def lines_of_text(lines: Sequence[Line], width: int | None, marks: Sequence[str]) -> list[str]:
    """The lines as text without colours, in at most `width` columns; None for as many as it takes."""
    return ["".join([segment.text for segment in row]).rstrip() for row in rows_of_segments(lines, width, marks)]


def rows_of_segments(lines: Sequence[Line], width: int | None, marks: Sequence[str]) -> Iterator[list[Segment]]:
    """The lines in columns.

    Args:
        lines: The lines.
        width: How many columns there are; None for as many as it takes.
        marks: What is put in front of each line: '+', '-' or ' '.
    """
    codes = [_code(line) for line in lines]
    tails = [_tail(line) for line in lines]
    widest = min(max([_length(code) for code, tail in zip(codes, tails, strict=True) if tail[0]], default=0), _WIDEST)
    room = None if width is None else width - bool(marks)
    widths = [min(max([_cells(tail[k]) for tail in tails if k < len(tail)], default=0), _WIDEST_CELL)
              for k in range(max(map(len, tails), default=0))]  # fmt: skip
    if room is not None:
        # What is least missed is left out first: the columns from the right, but for shapes and orders.
        while len(widths) > _FIXED and room - _needed(widths) < min(widest, _ENOUGH):
            widths.pop()
        # Then shapes, of functions with many results, and orders are cropped: what is computed tells more.
        for k in range(len(widths)):
            missing = min(widest, _ENOUGH) - (room - _needed(widths))
            widths[k] -= max(0, min(missing, widths[k] - _NARROW))
        widest = min(widest, max(_NARROW, room - _needed(widths)))
        tails = [tuple([_cropped_cell(text, w) for text, w in zip(tail, widths, strict=False)]) for tail in tails]
    for i, (line, code, tail) in enumerate(zip(lines, codes, tails, strict=True)):
        row = [Segment(marks[i], marks[i].strip())] if marks else []
        if not tail[0]:
            yield [*row, *_cropped(code, room)]
            continue
        code = _cropped(code, None if room is None else widest)
        row += [*code, Segment(" " * (widest - _length(code)))]
        for k, text in enumerate(tail):
            rest = any(tail[k + 1 :])
            if text or (rest and widths[k]):
                style = str(line.order) if k == 1 else "" if k == 0 else "dim"
                row += [Segment("  "), Segment(_padded(text, widths[k]) if rest else text, style)]
        yield _cropped(row, width)


def _needed(widths: Sequence[int]) -> int:
    """The room that columns take, with the space before each."""
    return sum([w + 2 for w in widths if w])


def _code(line: Line) -> list[Segment]:
    indent = [Segment("    " * line.depth)] if line.depth else []
    return [*indent, *[
        Segment(part.text, "op" if part.is_op else str(part.order) if part.order else "") for part in line.parts
    ]]  # fmt: skip


def _tail(line: Line) -> tuple[str, ...]:
    """Shapes, order with where it comes from, and what the other columns say."""
    if not line.shapes:
        return ("",)
    order = f"order {line.order}" if line.order else ""
    if line.origin:
        order = f"{order} {line.origin}".lstrip()
    return line.shapes, order, *line.cells


def _length(segments: Sequence[Segment]) -> int:
    return sum([_cells(segment.text) for segment in segments])


def _cells(text: str) -> int:
    """The columns that a text takes: two for each character of Chinese, Japanese and Korean, and most emoji."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _cells(text))


def _first_cells(text: str, width: int) -> str:
    """As much of the beginning of a text as `width` columns hold, and no more."""
    if text.isascii():
        return text[:width]
    from rich.cells import set_cell_size

    return set_cell_size(text, width) if _cells(text) > width else text


def _cropped_cell(text: str, width: int) -> str:
    return text if _cells(text) <= width else f"{_first_cells(text, width - 1)}…"


def _cropped(segments: list[Segment], width: int | None) -> list[Segment]:
    """Segments in at most `width` columns, the last of which tells that there was more."""
    if width is None or _length(segments) <= width:
        return segments
    kept: list[Segment] = []
    left = width - 1
    for text, style in segments:
        kept.append(Segment(_first_cells(text, left), style))
        left -= _cells(text)
        if left <= 0:
            break
    return [*kept, Segment("…", "dim")]


# ---------------------------------------------------------------- colours


def rich_lines(lines: Sequence[Line], marks: Sequence[str], width: int | None) -> Iterator[Text]:
    """The lines for a terminal, with colours where it has them."""
    from rich.text import Text

    for row in rows_of_segments(lines, width, marks):
        text = Text(no_wrap=True, overflow="crop")
        for segment in row:
            text.append(segment.text, _terminal_style(segment.style))
        text.rstrip()
        yield text


def _terminal_style(style: str) -> str:
    if style.isdigit():
        return "" if style == "0" else _TERMINAL_COLOURS[(int(style) - 1) % len(_TERMINAL_COLOURS)]
    return {"op": "bold", "dim": "dim", "+": "bold green", "-": "bold red"}.get(style, "")


def html_of(lines: Sequence[Line], marks: Sequence[str], most: int = 1000) -> str:
    """The lines for a notebook; of more than `most` the first ones, and how many there are."""
    rows = [
        "".join([_html(segment) for segment in row]).rstrip()
        for row in rows_of_segments(lines[:most], None, marks[:most])
    ]
    if len(lines) > most:
        rows.append(f"… {len(lines) - most} more lines; print() shows them")
    return '<pre style="line-height:1.35;overflow-x:auto;white-space:pre">' + "\n".join(rows) + "</pre>"


def _html(segment: Segment) -> str:
    text, style = html.escape(segment.text), segment.style
    if style.isdigit():
        style = "" if style == "0" else f"color:{ORDER_COLOURS[(int(style) - 1) % len(ORDER_COLOURS)]}"
    else:
        style = {"op": "font-weight:bold", "dim": "opacity:.65", "+": "color:#0f8a3c;font-weight:bold",
                 "-": "color:#d03a5a;font-weight:bold"}.get(style, "")  # fmt: skip
    return f'<span style="{style}">{text}</span>' if style and text else text
