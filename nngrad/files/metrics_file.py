"""What is measured of a run: lines of a CSV file."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path

from .replacing import read_whole, write_whole

STEP, SECONDS = "step", "seconds"


class MetricsFile:
    """A CSV file to which lines are appended, each in one call to the system, so that a reader sees whole lines.

    The first line has the names of the columns. Where a run is resumed, lines past the step at which it goes on are
    taken away, and what a killed process has left of a line: so no step is missing, and none is there twice.

    Args:
        path: The file; begun anew where there is none.
        step: How many steps the run has behind it.

    Raises:
        OSError: The file cannot be read or written; the message names it.
    """

    def __init__(self, path: Path, step: int) -> None:
        self._path = path
        content = read_whole(path) if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1].decode(errors="replace")
        lines = whole.splitlines(keepends=True)
        kept = [line for line in lines[1:] if _step_of(line) <= step]
        self.columns = next(csv.reader(lines[:1]), [])
        """The names of the columns, once there are any."""
        self.last = dict(zip(self.columns, next(csv.reader(kept[-1:]), []), strict=False))
        """The last line that is there, as texts by the names of their columns."""
        left = "".join(lines[:1] + kept).encode() if kept else b""
        if not kept:
            self.columns = []
        if left != content:
            write_whole(path, left)

    def append(self, values: Mapping[str, float]) -> None:
        """Add a line.

        Raises:
            ValueError: The file has other columns than these.
            OSError: It cannot be written.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self.columns:
            self.columns = list(values)
            writer.writerow(self.columns)
        if list(values) != self.columns:
            raise ValueError(f"{self._path}: has the columns {', '.join(self.columns)}, not {', '.join(values)}")
        self.last = {name: repr(value) for name, value in values.items()}
        writer.writerow(self.last.values())
        line = text.getvalue().encode()
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                written = os.write(file, line)
            finally:
                os.close(file)
        except OSError as error:
            raise OSError(error.errno, f"cannot be written: {error.strerror}", str(self._path)) from error
        if written < len(line):
            raise OSError(28, "cannot be written: no space is left", str(self._path))


def _step_of(line: str) -> float:
    """The step of a line of the file; infinite where it has none."""
    try:
        return float(line.partition(",")[0])
    except ValueError:
        return float("inf")
