"""Suggestions for misspelt names, in error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """"; did you mean ...?", if some known name is similar to `name`, else ""."""
    if not isinstance(name, str):  # from a caller that reports the missing name itself
        return ""
    close = difflib.get_close_matches(name, sorted(known), n=2, cutoff=0.7)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def no_such_argument(function: str, given: Iterable[str], known: Iterable[str]) -> TypeError | None:
    """The error for the first keyword in `given` that is not `known`; None if all are."""
    names = tuple(known)
    for name in given:
        if name not in names:
            hint = did_you_mean(name, names) or f"; there are {', '.join(names)}"
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


def raise_misspelt(function: str, given: Iterable[str], options: type) -> None:
    """Raise the error for the first keyword in `given` that is not in `options`, a TypedDict, if there is one."""
    misspelt = no_such_argument(function, given, sorted(options.__optional_keys__))  # type: ignore[attr-defined]
    if misspelt is not None:
        raise misspelt from None

