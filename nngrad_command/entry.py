"""Where the `nngrad` command enters. `doctor`, `follow`, `launch`, `docs` and `reproduce` do not import nngrad."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from . import __version__, doctor, documentation, launch, reproduction
from .following import command as following
from .outcome import cause_of, complain, error_line, exit_code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `arguments` (those of the process by default); returns the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    return exit_code(lambda: _run(given))


def _run(given: list[str]) -> int:
    if given[:1] == ["doctor"]:
        return doctor.main(given[1:])
    if given[:1] == ["launch"]:
        return launch.main(given[1:])
    if given[:1] == ["follow"]:
        return following.main(given[1:])
    if given[:1] == ["docs"]:
        return documentation.main(given[1:])
    if given[:1] == ["reproduce"]:
        return reproduction.main(given[1:])
    if given == ["--version"]:
        print(f"nngrad {__version__}")
        return 0
    try:
        from nngrad.command import cli
    except Exception as error:
        complain(f"nngrad cannot be imported: {error_line(cause_of(error))}\n"
                 "`nngrad doctor` says what is broken and what to do.")
        return 1
    return cli.main(given)
