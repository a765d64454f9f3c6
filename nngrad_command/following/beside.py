"""The web server of `nngrad follow` as a separate process beside the training.

A thread would compete with the training, and a broken server must not break it. A pipe tells the process when the
training has ended, in whatever way; the training never waits for the process.
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
"""Seconds within which the server must start."""


class FollowedBeside:
    """A context manager: within it, a page follows the run.

    Args:
        folder: The folder of the run, which need not exist yet.
        port: The port to listen on; 0 takes a free one.
    """

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.address = ""
        """The URL to open in a browser; empty if there is no server, for example because the port is taken."""
        # Ctrl-C and the closing of a terminal are meant for the training, and should not end the server first.
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
        """A line with the address of the page."""
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
            # The server lives a few seconds longer; this thread only collects its exit status.
            threading.Thread(target=process.wait, daemon=True).start()


def _address(process: subprocess.Popen[bytes]) -> str:
    """The address that the process prints; empty if it does not do so in time."""
    if process.stdout is None or not select.select([process.stdout], [], [], _PATIENCE)[0]:
        return ""
    said = os.read(process.stdout.fileno(), 64).strip()
    return f"http://127.0.0.1:{int(said)}/" if said.isdigit() else ""
