"""End a process that cannot wait for the others; the error that it raises."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import nngrad_command


class HostError(RuntimeError):
    """Another process has failed, died, hung or never arrived; the message names it.

    Raised by `nn.hosts.initialize`, `nn.hosts.barrier` and training steps. A process cannot go on without the others:
    even if the error is caught, it ends a few seconds after the failure is known.
    """


class LastWords:
    """A small process that reports the end of this one if it is killed, or aborted by JAX."""

    def __init__(self, who: str, first: str, address: str) -> None:
        script = Path(nngrad_command.__file__).with_name("last_words.py")
        self._process = subprocess.Popen([sys.executable, "-I", "-S", str(script)], stdin=subprocess.PIPE)
        self._write(json.dumps({"who": who, "first": first, "address": address}))

    def are_said(self) -> None:
        """Tell the small process that there is nothing left to report."""
        self._write("said")
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(1.0)

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()


def say(line: str) -> None:
    """Write a line to standard error, and ignore errors."""
    with contextlib.suppress(Exception):
        print(line, file=sys.stderr, flush=True)


def show_where_it_is(index: int) -> None:
    """Print the stack of each thread, which shows where a program hangs."""
    say(f"nngrad: the stacks of process {index}:")
    with contextlib.suppress(Exception):  # standard error is not a file
        faulthandler.dump_traceback(sys.stderr, all_threads=True)


def leave(code: int) -> NoReturn:
    """End the process without JAX's exit handlers, which would wait for processes that no longer run."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)
