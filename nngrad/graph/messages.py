"""Messages for users: locations in their programs, warnings that point there, and suggestions for misspelt names."""

from __future__ import annotations

import difflib
import linecache
import sys
import warnings
from collections.abc import Iterable
from types import FrameType
from typing import NamedTuple

from .engine import engine


class SourceLocation(NamedTuple):
    """A line of the user's program."""

    file: str
    line: int
    function: str

    @staticmethod
    def of_user() -> SourceLocation | None:
        """The current location in the user's program. Finding it takes 1.6 times as long as making a function, so it is
        not recorded for every function."""
        frame = _users_frame()
        return None if frame is None else SourceLocation(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)

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


# ---------------------------------------------------------------- names that are misspelt


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """"; did you mean ...?", if some known name is similar to `name`, else ""."""
    if not isinstance(name, str):  # from a caller that reports the missing name itself
        return ""
    close = difflib.get_close_matches(name, sorted(known), n=2, cutoff=0.7)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def no_such_argument(function: str, keywords: Iterable[str], known: Iterable[str]) -> TypeError | None:
    """The error for the first keyword in `keywords` that is not `known`; None if all are."""
    names = tuple(known)
    for name in keywords:
        if name not in names:
            similar = engine.argument_elsewhere(name, names) or did_you_mean(name, names)
            hint = similar or f"; expected {', '.join(names) or 'none'}"
            return TypeError(f"{function}: there is no argument {name!r}{hint}")
    return None


def left_out(without: Iterable[str], known: Iterable[str], one: str, several: str, listed_by: str) -> frozenset[str]:
    """The names of things to leave out, checked, as a set.

    Args:
        without: The names.
        known: The names that exist.
        one: The word for one of these things.
        several: The word for several of them.
        listed_by: The call that prints them all.

    Raises:
        TypeError: `without` is a string.
        ValueError: A name does not exist.
    """
    if isinstance(without, str):
        raise TypeError(f"without: expected a list of names of {several}, got {without!r}; write [{without!r}]")
    names, there = frozenset(without), tuple(known)
    for name in names.difference(there):
        hint = did_you_mean(str(name), there) or f"; {listed_by} lists them"
        raise ValueError(f"without: there is no {one} named {name!r}{hint}")
    return names


# ---------------------------------------------------------------- names of other libraries


def no_attribute(
    message: str, name: str, known: Iterable[str], fallback: str = "", module: str = "nngrad"
) -> AttributeError:
    """The error for a missing attribute `name`, with a hint: the counterpart of another library's name, the function of
    F, or similar names.

    Args:
        message: The beginning of the message.
        name: The missing name.
        known: The names that exist.
        fallback: The end of the message if no name is similar.
        module: The module or class of nngrad that lacks it.
    """
    end = engine.name_elsewhere(name, module) or did_you_mean(name, known) or fallback
    return AttributeError(message + end, name=name, obj=None)  # with an object, Python adds names that are spelt alike


class ImportHints:
    """An import finder that gives failed imports the same hints as missing attributes.

    Python says only "No module named" and "cannot import name", whatever `__getattr__` of a package says. This finder,
    asked after all others, is the one place where more can be said. It finds nothing, keeps nothing, and concerns only
    those packages of nngrad that have a `__getattr__`.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Let the import fail with Python's own error, or raise one with a hint, in `importlib.util.find_spec` too.

        Raises:
            ImportError: It names the counterpart of `name`.
        """
        package, _, last = name.rpartition(".")
        module = sys.modules.get(package)
        if package.partition(".")[0] != __name__.partition(".")[0] or not hasattr(module, "__getattr__"):
            return
        try:
            attribute = getattr(module, last)
        except AttributeError as error:
            raise ImportError(str(error), name=name) from None
        kind = type(attribute).__name__
        raise ImportError(f"{name} is a {kind}, not a module; write `from {package} import {last}`", name=name)
