"""A process that kills process groups when its parent is gone: run as a script, controlled by its standard input.

Each line names a group: `+123` when it begins, `-123` when it has ended. At the end of the input, when the writer has
ended in whatever way, the remaining groups are killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def main() -> None:
    """Read the names of groups until the end of input, and kill the remaining ones."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
