"""A process that reports the end of another one that cannot: run as a script, controlled by its standard input.

When its coordinator is gone, JAX ends a process at once, with a page of C++ errors, and without running any Python.
Where process 0, which runs the coordinator, is killed, nothing can prevent that; so it is explained.

The first line of input is JSON: `who` the process is and, unless it is process 0, the `address` at which process 0
listens and the name of the `first`. A line `said` means that nothing is left to report. The input ends when the process
ends, in whatever way.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import sys
import time

SECONDS = 2.0
"""Seconds within which process 0 must answer."""
MOMENT = 1.0
"""Seconds for which the socket of a process that is being killed may still listen: its connections may close first."""


def main() -> None:
    """Wait for the end of input, and report the end of the process if necessary."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    about = json.loads(sys.stdin.readline() or "null")
    if about is None or sys.stdin.readline():
        return
    end = "was killed, or has crashed"
    if about["address"] and goes(about["address"]):
        end = f"was aborted by JAX: {about['first']}, which runs JAX's coordinator, has died or cannot be reached"
    with contextlib.suppress(OSError):
        print(f"nngrad: {about['who']} {end}", file=sys.stderr, flush=True)


def goes(address: str) -> bool:
    """Whether nothing listens at an address, now or within `MOMENT` seconds."""
    end = time.monotonic() + MOMENT
    while is_there(address):
        if time.monotonic() > end:
            return False
        time.sleep(MOMENT / 20)
    return True


def is_there(address: str) -> bool:
    """Whether something listens at an address."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS).close()
    except (OSError, ValueError):
        return False
    return True


if __name__ == "__main__":
    main()
