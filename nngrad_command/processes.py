"""Child processes that start together, write their output through this process, and end together."""

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
"""The number of last lines that are kept of each process."""
LONGEST = 1 << 16
"""The number of bytes after which a line is passed on before its end."""
DRAIN = 2.0
"""Seconds within which the remaining output of an ended process must arrive."""
COLOURS = (36, 33, 35, 32, 34, 31)
"""The terminal colours of process numbers."""


class Guardian:
    """A context manager that kills process groups when this process ends, even if it is killed."""

    def __enter__(self) -> Guardian:
        # In a session of its own, so that a signal to the group of this process does not reach it.
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
        with contextlib.suppress(OSError):  # the guardian was killed
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
        """The exit code, once it has ended, or the negative of the signal that killed it."""
        self.ended_at = 0.0
        self.last: deque[str] = deque(maxlen=LAST)
        """The last lines of its output."""
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
        """Start to pass its output on; `lost` is called if this process's own output has no reader any more."""
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
                out.write(f"{label}{text}\n")  # in one piece, so that lines do not mix
                out.flush()
            except (OSError, ValueError, AttributeError):
                lost()

    def poll(self) -> bool:
        """Whether the process has ended; if so, the rest of its group is killed."""
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
        """Whether a signal has stopped it, and none has continued it."""
        try:
            found = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return found is not None and found.si_code == os.CLD_STOPPED

    def drain(self) -> None:
        """Wait up to `DRAIN` seconds for the rest of its output: a process outside its group may hold the pipe."""
        deadline = time.monotonic() + DRAIN
        for reader in self._readers:
            reader.join(max(0.0, deadline - time.monotonic()))
