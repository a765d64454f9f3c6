"""`show`: a graph as a readable program, one line per function, with the bodies of loops and branches below them."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..extend import Variable
from .description import Description, describe
from .lines import Line, Writer
from .naming import Parameters

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_WIDEST, _WIDEST_CELL = 72, 32
"""The widths of a line's code, and of the text of another column, beyond which what follows is no longer aligned."""
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

Row = list[tuple[str, str]]
"""A printed line: texts, each with its style, which may be empty."""


class Listing:
    """A graph as text: `print` it. With `rich` and in notebooks each order of differentiation has a colour."""

    def __init__(self, lines: Iterable[Line], described: Description) -> None:
        self.lines = tuple(lines)
        """The lines."""
        self.described = described
        """The description of the graph, without its Variables."""

    def __repr__(self) -> str:
        functions = sum([op is not None for op in self.described.ops])
        return f"<listing of {functions} functions in {len(self.lines)} lines; print it>"

    def __str__(self) -> str:
        return "\n".join(["".join([text for text, _ in row]) for row in _rows(self.lines)])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        for row in _rows(self.lines):
            yield Text.assemble(*row, no_wrap=True, overflow="ellipsis")

    def _repr_html_(self) -> str:
        rows = ["".join(map(_span, row)) for row in _rows(self.lines[:_MOST_IN_NOTEBOOKS])]
        if len(self.lines) > _MOST_IN_NOTEBOOKS:
            rows.append(f"… {len(self.lines) - _MOST_IN_NOTEBOOKS} more lines; print() shows them")
        return '<pre style="line-height:1.35;overflow-x:auto;white-space:pre">' + "\n".join(rows) + "</pre>"


def _rows(lines: tuple[Line, ...]) -> Iterator[Row]:
    """The lines, with shapes, orders and the other columns aligned."""
    lengths = [4 * line.depth + len(line.text) for line in lines]
    widest = min(max([n for n, line in zip(lengths, lines, strict=True) if line.cells], default=0), _WIDEST)
    columns = zip(*[line.cells for line in lines if line.cells], strict=True)
    widths = [min(max(map(len, column)), _WIDEST_CELL) for column in columns]
    for length, line in zip(lengths, lines, strict=True):
        row = [("    " * line.depth, "")]
        row += [(part.text, "bold" if part.is_op else _colour(part.order or 0)) for part in line.parts]
        space = max(0, widest - length)
        for cell, width, style in zip(line.cells, widths, _styles(line), strict=False):
            if cell:
                row.append((" " * (space + 2) + cell, style))
                space = max(0, width - len(cell))
            elif width:
                space += 2 + width
        yield row


def _styles(line: Line) -> tuple[str, ...]:
    """The styles of a line's cells: shapes, order, and the other columns."""
    return "", _colour(line.order), "dim", "dim", "dim"


def _colour(order: int) -> str:
    return [*_COLOURS][(order - 1) % len(_COLOURS)] if order else ""


def _span(styled: tuple[str, str]) -> str:
    text, style = html.escape(styled[0]), styled[1]
    return f'<span style="{_CSS[style]}">{text}</span>' if style else text


def show(outputs: Variable | Iterable[Variable], *, parameters: Parameters = None) -> Listing:
    """The graph that computes `outputs` as text: `print(nn.show(y))`.

    Each leaf and each function has a line, in the order of their creation: its results, its inputs, arguments, shapes
    and dtypes, and the order of differentiation if that is not 0, with the function whose backward rule it comes from.
    A function without inputs is a constant. The body of a loop or a branch is indented below it, with the operands of
    its inputs. Only outputs that are read have names. Nothing is run.

    Further columns say, where the graph has something to say: which values are kept for gradients and which are
    rematerialised; the parameter scope; and the line of your program, if recorded (`nn.source_locations`).

    On a terminal (with `rich.print`) and in notebooks, each order of differentiation has a colour.

    Args:
        outputs: A Variable or Variables.
        parameters: Names of unregistered parameters, such as a module's: `model.get_parameters()`.

    Returns:
        A `Listing`.

    Raises:
        TypeError: Something is not a Variable, or another argument has the wrong type.
        ValueError: There are no outputs.
    """
    described = describe(outputs, parameters)
    lines = tuple(Writer(described).lines())
    described.forget_graph()
    return Listing(lines, described)
