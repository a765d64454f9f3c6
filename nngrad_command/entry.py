"""The entry point of the `nngrad` command. Commands of `nngrad_command` do not import nngrad."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from . import __version__, commands
from .outcome import cause_of, complain, error_line, exit_code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `arguments` (by default those of the process), and return the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    return exit_code(lambda: _run(given))


def _run(given: list[str]) -> int:
    if given == ["--version"]:  # argparse ignores errors of the output
        print(f"nngrad {__version__}")
        return 0
    if given and given[0] in commands.ALONE:
        return commands.run(commands.ALONE, given)
    try:
        from nngrad.command import cli
    except Exception as error:
        complain(f"nngrad cannot be imported: {error_line(cause_of(error))}\n"
                 "`nngrad doctor` says what is broken and what to do.")
        return 1
    return cli.main(given)
