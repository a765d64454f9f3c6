"""Console output of commands, and their messages about missing or broken packages."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from nngrad_command.installation import Requirement, install_command
from nngrad_command.outcome import cause_of, complain, error_line

PIPED_WIDTH = 200
"""The width of tables that are not printed to a terminal."""


def console_of_output() -> Console:
    """A console on standard output."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPED_WIDTH)


def plain_table(*titles: str) -> Table:
    """A table without borders, whose cells wrap if they are too wide."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def lacks(command: str, lacking: list[Requirement]) -> bool:
    """Whether packages are missing; if so, print which."""
    if lacking:
        names = " and ".join([r.wanted for r in lacking])
        complain(f"nngrad {command} needs {names}. This installs what is missing:\n\n    {install_command(lacking)}\n")
    return bool(lacking)


def complain_of_import(command: str, error: Exception) -> None:
    """Report that a package that a command needs is installed but cannot be imported."""
    complain(f"nngrad {command}: what it needs is installed, but cannot be imported: {error_line(cause_of(error))}\n"
             "`nngrad doctor` says what is broken and what to do.")
