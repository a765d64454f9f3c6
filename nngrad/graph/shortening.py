"""Names and arguments as short printable text."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Any

import numpy as np

from .spec import Spec

if TYPE_CHECKING:
    from .op import Op

LONGEST_NAME = 60
LONGEST_ARGUMENT = 48
"""The maximum length of one argument's value."""


def printable(text: str, most: int = LONGEST_NAME) -> str:
    """`text` on one line of at most `most` characters, with unprintable ones escaped as Python does."""
    if len(text) > most:
        text = text[: most - 1] + "…"
    if not text.isprintable():
        text = "".join([c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text])
        text = text if len(text) <= most else text[: most - 1] + "…"
    return text


def quoted(text: str, most: int = LONGEST_NAME) -> str:
    """`text` in quotes, as by `repr`, with at most `most` characters between them."""
    kept = text[:most]
    while len(repr(kept)) > most + 2:
        kept = kept[:-1]
    return repr(kept if kept == text else kept[:-1] + "…")


class _Short(reprlib.Repr):
    """Abbreviates values of arguments: keeps both ends of long ones, and the outer levels of deep ones."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxtuple = self.maxlist = self.maxdict = self.maxset = self.maxfrozenset = 6
        self.maxstring = self.maxother = self.maxlong = LONGEST_ARGUMENT
        self.fillvalue = "…"


_short = _Short()


def value_text(value: Any) -> str:
    """The `repr` of a value, shortened; if that fails, its type."""
    if isinstance(value, np.dtype):
        text = value.name
    elif value.__class__ in (int, float, bool, type(None), Spec):
        text = repr(value)
    else:
        text = _short.repr(value)
    return printable(text, LONGEST_ARGUMENT)


def argument_text(op: Op, arguments: tuple[Any, ...], switches: bool) -> str:
    """The static arguments of a function, by name, without those that are None or False; with `switches`, for an op
    whose bodies say the rest, only those that are True."""
    if not arguments:
        return ""
    return ", ".join([
        f"{name}={value_text(value)}" for name, value in op.named(arguments).items()
        if value is True or not (switches or value is None or value is False)
    ])  # fmt: skip
