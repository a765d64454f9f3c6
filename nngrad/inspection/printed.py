"""Rendering of listings to a given width, for terminals, notebooks and files."""

from __future__ import annotations

import html
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..extend import checked_count

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

    from .lines import Line

_WIDEST = 72
"""The width of a line's code beyond which shapes are no longer aligned."""
_WIDEST_CELL = 32
"""The same for the texts of other columns."""
_NARROWEST = 20
"""The minimum width that may be requested."""
_ENOUGH = 48
"""The width that the code gets before shapes and orders."""
_MOST_IN_NOTEBOOKS = 1000
"""The maximum number of lines in notebooks."""

_COLOURS = {
    "dodger_blue1": "#1f77d0", "dark_orange": "#c05a00", "green3": "#0f8a3c", "medium_orchid": "#a04fd0",
    "red1": "#d03a5a", "dark_cyan": "#00838f", "gold3": "#8a7000", "grey62": "#7a6a8a",
}  # fmt: skip
"""Colours of the orders of differentiation from the first on, on a terminal and in a notebook; they are distinct on
white and on black."""
_CSS = {
    "bold": "font-weight:bold", "dim": "opacity:.65", **{name: f"color:{code}" for name, code in _COLOURS.items()},
}  # fmt: skip


class Printed:
    """Base class of objects displayed as lines: as text, in colour on a terminal, and in notebooks."""

    lines: tuple[Line, ...]

    def text(self, width: int | None = None) -> str:
        """The text in at most `width` columns; None for unlimited.

        Raises:
            ValueError: `width` is below 20.
        """
        if width is not None:
            checked_count(width, "width", _NARROWEST, " or None")
        return "\n".join([row.plain for row in _rows(self.lines, width)])

    def __str__(self) -> str:
        return self.text(_width_of_output())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _rows(self.lines, options.max_width)

    def _repr_html_(self) -> str:
        rows = [_html(row) for row in _rows(self.lines[:_MOST_IN_NOTEBOOKS], None)]
        if len(self.lines) > _MOST_IN_NOTEBOOKS:
            rows.append(f"… {len(self.lines) - _MOST_IN_NOTEBOOKS} more lines; print() shows them")
        return '<pre style="line-height:1.35;overflow-x:auto;white-space:pre">' + "\n".join(rows) + "</pre>"


def _width_of_output() -> int | None:
    """The columns of the output terminal; None if it is not a terminal."""
    try:
        return max(_NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None
    except (AttributeError, ValueError):  # no standard output, or a closed one
        return None


def _rows(lines: Sequence[Line], width: int | None) -> Iterator[Text]:
    """The lines in columns, of a width in characters; None for unlimited."""
    codes, tails = [_code(line) for line in lines], [_tail(line) for line in lines]
    widest = min(max([code.cell_len for code, tail in zip(codes, tails, strict=True) if tail], default=0), _WIDEST)
    widths = [min(max([tail[k].cell_len for tail in tails if k < len(tail)], default=0), _WIDEST_CELL)
              for k in range(max(map(len, tails), default=0))]  # fmt: skip
    if width is not None:  # shapes and orders have room beside the code, unless that were too narrow
        widest = min(widest, max(_ENOUGH, width - sum([w + 2 for w in widths[:2]])))
    for code, tail in zip(codes, tails, strict=True):
        row = _assembled()
        if width is not None:
            code.truncate(widest if tail else width, overflow="ellipsis")
        if tail:
            code.pad_right(max(0, widest - code.cell_len))
        row.append_text(code)
        for k, (cell, cells) in enumerate(zip(tail, widths, strict=False)):
            if width is not None:
                cell.truncate(cells, overflow="ellipsis")
            rest = any(tail[k + 1 : len(widths)])
            if cell or (rest and cells):
                cell.pad_right(max(0, cells - cell.cell_len) if rest else 0)
                row.append("  ").append_text(cell)
        if width is not None:
            row.truncate(width, overflow="ellipsis")
        row.rstrip()
        yield row


def _assembled(*parts: str | tuple[str, str]) -> Text:
    from rich.text import Text

    return Text.assemble(*parts, no_wrap=True, overflow="crop")


def _code(line: Line) -> Text:
    parts = [(part.text, "bold" if part.is_op else _colour(part.order or 0)) for part in line.parts]
    return _assembled("    " * line.depth, *parts)


def _tail(line: Line) -> tuple[Text, ...]:
    """Shapes, order with origin, and the other columns; empty if there are no shapes."""
    if not line.shapes:
        return ()
    order = f"order {line.order} {line.origin}".rstrip() if line.order else line.origin
    return _assembled(line.shapes), _assembled((order, _colour(line.order))), *[
        _assembled((cell, "dim")) for cell in line.cells
    ]  # fmt: skip


def _colour(order: int) -> str:
    return [*_COLOURS][(order - 1) % len(_COLOURS)] if order else ""


def _html(row: Text) -> str:
    """A row as HTML, with its colours as inline styles."""
    parts, end = [], 0
    for start, stop, style in row.spans:
        parts += [html.escape(row.plain[end:start]),
                  f'<span style="{_CSS[str(style)]}">{html.escape(row.plain[start:stop])}</span>']
        end = stop
    return "".join([*parts, html.escape(row.plain[end:])])
