"""Child processes that start together, write through this one, and end together."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

LAST = 20
"""How many lines of each process are kept."""
LONGEST = 1 << 16
"""Bytes of a line that is passed on before its end has come."""
DRAIN = 2.0
"""Seconds in which what an ended process has written must have arrived."""
COLOURS = (36, 33, 35, 32, 34, 31)
"""Of the numbers of processes, on a terminal."""


class Guardian:
    """A context manager that kills process groups when this process ends, even if it is killed."""

    def __enter__(self) -> Guardian:
        # In a session of its own, so that what kills the group of this process does not reach it.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("guardian.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()

    def tell(self, sign: str, group: int) -> None:
        """Report a group that has begun (`+`) or ended (`-`)."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the guardian was killed: there is nobody to tell
            self._process.stdin.write(f"{sign}{group}\n".encode())
            self._process.stdin.flush()


class Started:
    """A child process, leader of its own group, whose output lines are prefixed with its number."""

    def __init__(
        self, index: int, command: Sequence[str], environment: Mapping[str, str], guardian: Guardian, *,
        pass_on: tuple[int, ...] = (),
    ) -> None:
        self.index = index
        self.code: int | None = None
        """What it returned, once it has ended; the negative of the signal that killed it."""
        self.ended_at = 0.0
        self.last: deque[str] = deque(maxlen=LAST)
        """The last lines that it wrote."""
        self._guardian = guardian
        self._popen = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            process_group=0, pass_fds=pass_on,
        )  # fmt: skip
        guardian.tell("+", self._popen.pid)
        self._readers: list[threading.Thread] = []

    @property
    def pid(self) -> int:
        return self._popen.pid

    def read(self, lost: Callable[[], None]) -> None:
        """Start to pass its lines on; `lost` is called if nobody reads them any more."""
        for pipe, out in ((self._popen.stdout, sys.stdout), (self._popen.stderr, sys.stderr)):
            assert pipe is not None
            reader = threading.Thread(target=self._pass_on, args=(pipe, out, lost), daemon=True)
            reader.start()
            self._readers.append(reader)

    def _pass_on(self, pipe: IO[bytes], out: IO[str], lost: Callable[[], None]) -> None:
        label = f"[{self.index}] "
        if out is not None and out.isatty():
            label = f"\x1b[{COLOURS[self.index % len(COLOURS)]}m[{self.index}]\x1b[0m "
        while line := pipe.readline(LONGEST):
            text = line.decode(errors="backslashreplace").rstrip("\r\n")
            self.last.append(text)
            try:
                out.write(f"{label}{text}\n")  # in one piece, between the lines of others
                out.flush()
            except (OSError, ValueError, AttributeError):
                lost()

    def poll(self) -> bool:
        """Whether it has ended; the rest of its group is killed then."""
        if self.code is None:
            self.code = self._popen.poll()
            if self.code is not None:
                self.ended_at = time.monotonic()
                self.send(signal.SIGKILL)
                self._guardian.tell("-", self.pid)
        return self.code is not None

    def send(self, number: int) -> None:
        """Send a signal to its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def is_stopped(self) -> bool:
        """Whether a signal has stopped it without another having continued it."""
        try:
            found = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return found is not None and found.si_code == os.CLD_STOPPED

    def drain(self) -> None:
        """Wait for the rest of its output; a process that left its group may hold the pipe for longer."""
        deadline = time.monotonic() + DRAIN
        for reader in self._readers:
            reader.join(max(0.0, deadline - time.monotonic()))
