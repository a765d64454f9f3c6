"""The web server of `nngrad follow` as a separate process beside the training.

A thread would take turns with the training, and a server that breaks must not break it. The process sees by a pipe when
the training has ended, in whatever way; it is waited for neither then nor before.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
from pathlib import Path

_PATIENCE = 10.0
"""Seconds in which the server has to be there."""


class FollowedBeside:
    """A context manager: within it, a page follows the run.

    Args:
        folder: The run's, which need not be there yet.
        port: Where to listen; 0 takes a port that is free.
    """

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.address = ""
        """What a browser opens; empty where there is no server, because the port is taken for example."""
        # Neither Ctrl-C nor the closing of a terminal, which are meant for the training, should end it first.
        command = [sys.executable, "-m", "nngrad_command", "follow", "--beside", f"--port={port}", "--", str(folder)]
        self._process: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
            self.address = _address(self._process)

    @property
    def said(self) -> str:
        """A line that tells the page's address."""
        if not self.address:
            return "no page follows the run: its server does not start"
        return f"a page that follows the run: {self.address}"

    def __enter__(self) -> FollowedBeside:
        return self

    def __exit__(self, *_: object) -> None:
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            # It lives a few seconds longer, which nobody waits for.
            threading.Thread(target=process.wait, daemon=True).start()


def _address(process: subprocess.Popen[bytes]) -> str:
    """The address that the process prints, if it does so in time."""
    if process.stdout is None or not select.select([process.stdout], [], [], _PATIENCE)[0]:
        return ""
    said = os.read(process.stdout.fileno(), 64).strip()
    return f"http://127.0.0.1:{int(said)}/" if said.isdigit() else ""
