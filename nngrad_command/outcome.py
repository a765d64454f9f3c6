"""How commands end: their exit codes, and one line in place of a traceback."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any


def exit_code(run: Callable[[], int]) -> int:
    """Run a command and return its exit code: 130 if it is interrupted; 1, with a message, if the output cannot be
    written.

    If the reader of the output has gone, as in `nngrad ops | head`, nothing is reported. Characters that the encoding
    of the output cannot express are printed as escape sequences.
    """
    if sys.stdout is None:
        complain("nngrad: cannot write the output: standard output is closed")
        return 1
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            return run()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        complain(f"nngrad: interrupted{f'; {interrupt}' if str(interrupt) else ''}")
        return 130
    except BrokenPipeError:
        _discard_output()
        return 1
    except OSError as error:
        if error.filename is not None:
            raise
        # Commands report errors of their files themselves: an error without a file is that of the output.
        _discard_output()
        complain(f"nngrad: cannot write the output: {error.strerror or error}")
        return 1


def reported(command: str, *errors: type[Exception]) -> Callable[[Callable[[Any], int]], Callable[[Any], int]]:
    """Decorate a command: expected errors become a line of output and the exit code 1.

    Args:
        command: The name of the command.
        errors: The errors to report, besides those of files. (An OSError without a file is that of the output.)
    """

    def decorated(run: Callable[[Any], int]) -> Callable[[Any], int]:
        @functools.wraps(run)
        def guarded(given: Any) -> int:
            try:
                return run(given)
            except OSError as error:
                if error.filename is None:
                    raise
                complain(f"nngrad {command}: {error.filename}: {error.strerror}")
            except errors as error:
                complain(f"nngrad {command}: {error}")
            return 1

        return guarded

    return decorated


def has_devices(command: str, devices: Callable[[], Any]) -> bool:
    """Whether JAX finds devices, which fails if JAX_PLATFORMS names a missing one; if not, print a message."""
    try:
        devices()
    except Exception as error:
        complain(f"nngrad {command}: JAX finds no device: {error_line(error)}\n`nngrad doctor` says what to do.")
        return False
    return True


def complain(message: str) -> None:
    """Print a message to standard error, if that is open."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(message, file=sys.stderr, flush=True)


def error_line(error: BaseException) -> str:
    """An error in one line: its type and the first line of its message, or its location if it has no message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}{f': {lines[0]}' if lines else raised_at(error)}"


def raised_at(error: BaseException) -> str:
    """The location where an error was raised, in brackets."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen")]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def cause_of(error: BaseException) -> BaseException:
    """The first error in a chain of causes."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _discard_output() -> None:
    """Discard buffered output, which would fail again when the interpreter flushes it at exit."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
