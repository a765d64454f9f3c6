"""Locations in the user's program, and warnings that point there."""

from __future__ import annotations

import linecache
import sys
import warnings
from types import FrameType
from typing import NamedTuple


class SourceLocation(NamedTuple):
    """A line of the user's program."""

    file: str
    line: int
    function: str

    @property
    def code(self) -> str:
        """The source line, or "" if it cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        code = self.code
        within = "" if self.function == "<module>" else f", in {self.function}"
        return f"{self.file}:{self.line}{within}" + (f": {code}" if code else "")


def _users_frame() -> FrameType | None:
    """The innermost frame outside nngrad."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        # The callers that the op decorator compiles have no module; they are nngrad's.
        module = frame.f_globals.get("__name__", "nngrad").partition(".")[0]
        if module not in ("nngrad", "backward_registry"):
            break
        frame = frame.f_back
    return frame


def users_location() -> SourceLocation | None:
    """The current location in the user's program."""
    frame = _users_frame()
    return None if frame is None else SourceLocation(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the current location in the user's program; Python shows it once per line."""
    frame = _users_frame()
    if frame is None:
        warnings.warn(message, category, stacklevel=2)
    else:
        seen = frame.f_globals.setdefault("__warningregistry__", {})
        warnings.warn_explicit(
            message, category, frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__"), seen
        )
