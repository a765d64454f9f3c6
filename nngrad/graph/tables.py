"""Tables, as text and as HTML for notebooks, with everything escaped; and numbers of bytes."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Sequence


def aligned(rows: Sequence[Sequence[str]], numbers: Collection[int] = (), rules: Collection[int] = ()) -> list[str]:
    """Rows as aligned lines of text.

    Args:
        rows: The cells of each row.
        numbers: The columns to align right.
        rules: The rows below a horizontal rule.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for i, row in enumerate(rows):
        if i in rules:
            lines.append("  ".join(["-" * width for width in widths]))
        cells = [cell.rjust(w) if k in numbers else cell.ljust(w)
                 for k, (cell, w) in enumerate(zip(row, widths, strict=True))]  # fmt: skip
        lines.append("  ".join(cells).rstrip())
    return lines


def unit_of_bytes(nbytes: float) -> tuple[float, str]:
    """A suitable unit for a number of bytes, and its name."""
    for size, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(nbytes) >= size:
            return size, name
    return 1.0, "B"


def shown_bytes(nbytes: float, digits: int = 3) -> str:
    """A number of bytes in a suitable unit."""
    size, name = unit_of_bytes(nbytes)
    return f"{nbytes / size:.{digits}g} {name}"


_CELL = "padding:.1em .7em .1em 0;border:0;background:none;"


def html_table(rows: Iterable[Sequence[str]], head: Sequence[str] = (), numbers: bool = False) -> str:
    """An HTML table that takes its colours from the page, light or dark.

    Args:
        rows: The cells of each row, as text.
        head: The titles of the columns, if any; without them the first cell of each row is a title.
        numbers: Whether all columns but the first are numbers.
    """
    side = "right" if numbers else "left"
    lines = []
    if head:
        lines.append(_row("th", head, side, f"{_CELL}font-weight:bold;opacity:.75;"))
    for row in rows:
        if head:
            lines.append(_row("td", row, side, _CELL))
        else:
            lines.append(f"<tr>{_cell('th', row[0], 'left', f'{_CELL}font-weight:normal;opacity:.75;')}"
                         f"{''.join([_cell('td', text, side, _CELL) for text in row[1:]])}</tr>")  # fmt: skip
    return f'<table style="border-collapse:collapse;border:0">{"".join(lines)}</table>'


def _row(tag: str, texts: Sequence[str], side: str, style: str) -> str:
    cells = [_cell(tag, text, side if i else "left", style) for i, text in enumerate(texts)]
    return f"<tr>{''.join(cells)}</tr>"


def _cell(tag: str, text: str, side: str, style: str) -> str:
    style += f"text-align:{side};white-space:pre-wrap;vertical-align:top"  # arrays have several lines
    return f'<{tag} style="{style}">{html.escape(text)}</{tag}>'


def titled(title: str, body: str) -> str:
    """A table, or another element, below a title."""
    return f"<div><div><code>{html.escape(title)}</code></div>{body}</div>"
