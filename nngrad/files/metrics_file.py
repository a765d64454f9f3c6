"""The metrics of a run as lines of a CSV file."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from .replacing import read_whole, write_whole

STEP, SECONDS = "step", "seconds"


class MetricsFile:
    """A CSV file to which lines are appended, each in one call to the system, so that a reader sees whole lines.

    The first line has the names of the columns; a cell is empty where nothing was measured. A line with new names
    replaces the file by one that has their columns too. Where a run is resumed, lines past the step at which it goes on
    are taken away, and what a killed process has left of a line: so no step is missing, and none is there twice.

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
        reader = csv.DictReader(io.StringIO(whole, newline=""))
        self.lines = [{name: text for name, text in row.items() if name and text}
                      for row in reader if _number(row.get(STEP)) <= step]
        """What each line has, as texts by the names of their columns."""
        self.columns = list(reader.fieldnames or []) if self.lines else []
        """The names of the columns, once there are any."""
        if self._content() != content:
            write_whole(path, self._content())

    def append(self, values: Mapping[str, float]) -> None:
        """Add a line.

        Raises:
            OSError: It cannot be written.
        """
        new = [name for name in values if name not in self.columns]
        self.columns += new
        self.lines.append({name: repr(value) for name, value in values.items()})
        if new:
            write_whole(self._path, self._content())
            return
        line = _line(self.lines[-1].get(name, "") for name in self.columns)
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

    def _content(self) -> bytes:
        rows = [[line.get(name, "") for name in self.columns] for line in self.lines]
        return b"".join(map(_line, [self.columns, *rows])) if rows else b""


def _line(cells: Iterable[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()


def _number(text: str | None) -> float:
    """The number of a step; infinite where there is none."""
    try:
        return float(text or "inf")
    except ValueError:
        return float("inf")
