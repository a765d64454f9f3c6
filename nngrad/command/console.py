"""Where commands print: a terminal, or a file that is wide enough for a table."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

PIPED_WIDTH = 200
"""Columns of a table that is not printed to a terminal."""


def console_of_output() -> Console:
    """The console of the standard output."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPED_WIDTH)


def plain_table(*titles: str) -> Table:
    """A table without lines, whose cells are folded where they are too wide."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold")
    return table
