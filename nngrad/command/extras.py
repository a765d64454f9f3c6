"""Packages of extras that a command needs, and what is said where they are missing or broken."""

from __future__ import annotations

from nngrad_command.installation import Requirement, install_command
from nngrad_command.outcome import cause_of, complain, error_line


def lacks(command: str, lacking: list[Requirement]) -> bool:
    """Whether packages are missing; says so."""
    if lacking:
        names = " and ".join([r.wanted for r in lacking])
        complain(f"nngrad {command} needs {names}. This installs what is missing:\n\n    {install_command(lacking)}\n")
    return bool(lacking)


def complain_of_import(command: str, error: Exception) -> None:
    """Say that what a command needs is installed, and cannot be imported."""
    complain(f"nngrad {command}: what it needs is installed, but cannot be imported: {error_line(cause_of(error))}\n"
             "`nngrad doctor` says what is broken and what to do.")
