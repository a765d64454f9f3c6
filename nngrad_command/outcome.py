"""How commands end: their exit codes, and one line in place of a traceback."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable


def exit_code(run: Callable[[], int]) -> int:
    """Run a command and return its exit code: 130 if it is interrupted; 1, with a message, if a file or the output
    cannot be written. If the reader of the output has gone, nothing is reported."""
    if sys.stdout is None:
        complain("nngrad: cannot write the output: standard output is closed")
        return 1
    try:
        try:
            return run()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        complain("nngrad: interrupted")
        return 130
    except OSError as error:
        if error.filename is None:  # of the output, which would fail again when Python flushes it
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            complain(f"nngrad: cannot write {error.filename or 'the output'}: {error.strerror or error}")
        return 1


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
