"""Display Variables and Functions on one line, and rows as tables. This computes nothing. Names and arguments become
short printable text, whatever they hold, and notebooks' text is escaped."""

from __future__ import annotations

import html
import reprlib
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ..extend import Function, Op, Spec, Variable, provide

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
    shown = text[:most]
    while len(repr(shown)) > most + 2:
        shown = shown[:-1]
    return repr(shown if shown == text else shown[:-1] + "…")


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
    elif value.__class__ in (int, float, bool, type(None), Spec) or _is_short(value):
        text = repr(value)
    else:
        text = _short.repr(value)
    return printable(text, LONGEST_ARGUMENT)


def _is_short(value: Any) -> bool:
    """True for a tuple of few integers, as most arguments are, whose `repr` needs no shortening."""
    return value.__class__ is tuple and len(value) <= _short.maxtuple and {int}.issuperset(map(type, value))


def argument_text(op: Op, arguments: tuple[Any, ...], switches: bool) -> str:
    """The static arguments of a function, by name, except those that are None or False; with `switches`, for an op
    whose bodies say the rest, only those that are True."""
    if not arguments:
        return ""
    return ", ".join([
        f"{name}={value_text(value)}" for name, value in op.named(arguments).items()
        if value is True or not (switches or value is None or value is False)
    ])  # fmt: skip


# ---------------------------------------------------------------- Variables and Functions

_LONGEST_VALUE = 72
_MOST_SHOWN = 8
"""How many inputs, or results, of one function are listed."""


def array_text(array: np.ndarray[Any, Any]) -> str:
    """An array on one line; of a large one, the elements at its ends."""
    edge = 3
    while True:
        text = " ".join(np.array2string(array, threshold=20, edgeitems=edge, max_line_width=10**6).split())
        text = text.replace("[ ", "[")
        if len(text) <= _LONGEST_VALUE or edge == 1:
            return printable(text, _LONGEST_VALUE)
        edge -= 1


def _variable_text(x: Variable) -> str:
    name = f" {quoted(x.name)}" if x.name else ""
    head, cell = f"<Variable{name} {x.spec} ({_kind_of(x)})", x.cell
    return f"{head}>" if cell.is_deferred or cell.is_empty else f"{head} = {array_text(cell.view)}>"


def _kind_of(x: Variable) -> str:
    if x.parent is None:
        return "leaf, need_grad" if x.need_grad else "leaf"
    return f"{x.parent.op.type_name}, rank {x.rank}"


def _function_text(f: Function) -> str:
    inputs = _first([repr(x.spec) for x in f.inputs])
    arguments = [f"{name}={value_text(value)}" for name, value in f.args.items()]
    # A loop may have many results: a stack of each value in its body.
    return f"<{f.op.type_name}({', '.join([*inputs, *arguments])}) -> {', '.join(_first(list(map(repr, f.specs))))}>"


provide(Variable, {"__repr__": _variable_text})
provide(Function, {"__repr__": _function_text})


def _first(texts: Sequence[str]) -> list[str]:
    """The first few texts, and how many more there are."""
    more = len(texts) - _MOST_SHOWN
    return [*texts[:_MOST_SHOWN], *([f"and {more} more"] if more > 0 else [])]


# ---------------------------------------------------------------- tables


def aligned(rows: Sequence[Sequence[str]], numbers: Collection[int] = (), rules: Collection[int] = ()) -> list[str]:
    """Rows as aligned lines of text.

    Args:
        rows: The cells of each row.
        numbers: The columns to align right.
        rules: The rows below a horizontal rule.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for i, row in enumerate(rows):
        if i in rules:
            lines.append("  ".join(["-" * width for width in widths]))
        cells = [cell.rjust(w) if k in numbers else cell.ljust(w)
                 for k, (cell, w) in enumerate(zip(row, widths, strict=True))]  # fmt: skip
        lines.append("  ".join(cells).rstrip())
    return lines


def shown_bytes(nbytes: float, digits: int = 3) -> str:
    """A number of bytes in a suitable unit."""
    units = (1e9, "GB"), (1e6, "MB"), (1e3, "kB")
    size, name = next((unit for unit in units if abs(nbytes) >= unit[0]), (1.0, "B"))
    return f"{nbytes / size:.{digits}g} {name}"


def as_html(text: str) -> str:
    """Text for a notebook, in a fixed-width font."""
    return f'<pre style="line-height:1.35;overflow-x:auto;white-space:pre">{html.escape(text)}</pre>'
