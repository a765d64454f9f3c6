"""`nngrad cache`: list and clear the executables on disk."""

from __future__ import annotations

import argparse

from nngrad_command.outcome import complain

from ..execution import executables
from ..execution.disk import lines_of_info

DESCRIPTION = ("Show where executables are kept from run to run, whether they are used, how many there are and how "
               "much room they take; or remove them all.")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `nngrad cache`."""
    parser.add_argument("action", nargs="?", choices=("show", "clear"), default="show",
                        help="what to do (default: show)")


def run(given: argparse.Namespace) -> int:
    """`nngrad cache`; returns the exit code."""
    disk = executables.disk
    if given.action == "clear":
        try:
            count = disk.clear()
        except OSError as error:
            complain(f"nngrad cache clear: {disk.info().folder}: {error.strerror or error}")
            return 1
        print(f"{count} executables removed from {disk.info().folder}")
        return 0
    for line in lines_of_info(disk.info()):
        print(line)
    return 0
