"""Display Variables and Functions, on one line and as tables in notebooks. This computes nothing. Names and arguments
become short printable text, whatever they hold, and notebooks' text is escaped."""

from __future__ import annotations

import html
import reprlib
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ..extend import Function, Op, SourceLocation, Spec, Variable, functions_of, is_shared, on_host, provide

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
    """The static arguments of a function, by name, except those that are None or False; with `switches`, for an op
    whose bodies say the rest, only those that are True."""
    if not arguments:
        return ""
    return ", ".join([
        f"{name}={value_text(value)}" for name, value in op.named(arguments).items()
        if value is True or not (switches or value is None or value is False)
    ])  # fmt: skip


# ---------------------------------------------------------------- Variables and Functions

LONGEST = 160
"""The maximum length of a line."""
_LONGEST_VALUE = 72
_MOST_SHOWN = 8
"""How many inputs, or results, of one function are listed."""
_MOST_ELEMENTS = 200
"""How many elements of an array a table shows at most."""


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
    value = _value_of(x)
    head = f"<Variable{name} {x.spec} ({_kind_of(x)})"
    if value is None:
        return f"{head}>"
    return f"{head} = {array_text(value)}{f' ({_OLD})' if _is_old(x) else ''}>"


def _variable_html(x: Variable) -> str:
    rows = [("shape", str(list(x.shape))), ("dtype", x.dtype.name)]
    if x.parent is None:
        rows.append(("leaf", "needs a gradient" if x.need_grad else "needs no gradient"))
    else:
        rows += [("computed by", printable(repr(x.parent), LONGEST)), *_where_from(x.parent)]
    value = _value_of(x)
    if value is not None:
        rows.append(("value", np.array2string(value, threshold=_MOST_ELEMENTS, max_line_width=100)))
        rows += [("", _OLD)] * _is_old(x)
    elif x.parent is not None:
        rows.append(("value", "not computed yet"))
    name = f" {quoted(x.name)}" if x.name else ""
    return _titled(f"Variable{name}", rows)


def _kind_of(x: Variable) -> str:
    if x.parent is None:
        return "leaf, need_grad" if x.need_grad else "leaf"
    return f"{x.parent.op.type_name}, rank {x.rank}"


def _value_of(x: Variable) -> np.ndarray[Any, Any] | None:
    """The value of a Variable, if it is computed."""
    cell = x.cell
    return None if cell.is_deferred or cell.is_empty else cell.view


_OLD = "leaves have changed since"


def _is_old(x: Variable) -> bool:
    """Whether a leaf that the value of `x` was computed from has since been changed by the user, not by the graph."""
    before = x.computed_from
    if before is None:
        return False
    functions = functions_of([x])
    updated = {id(leaf) for f in functions for leaf, _ in f.effects}
    leaves = {id(leaf): leaf for f in functions for leaf in f.inputs if id(leaf) in before.keys() - updated}
    return any([_has_changed(leaf, before[i]) for i, leaf in leaves.items()])


def _has_changed(leaf: Variable, before: Any) -> bool:
    """Whether a leaf's values differ from the array `before`, or that array is gone (None)."""
    cell = leaf.cell
    if before is None or cell.is_deferred:
        return True
    if cell.is_zero:
        return bool(np.any(on_host(before)))
    now = cell.held.array if cell.held.has_view else cell.raw()
    return now is not before and (is_shared(now) or on_host(now).tobytes() != on_host(before).tobytes())


def _function_text(f: Function) -> str:
    given = _first([repr(x.spec) for x in f.inputs])
    arguments = [f"{name}={value_text(value)}" for name, value in f.args.items()]
    # A loop may have many results: a stack of each value in its body.
    return f"<{f.op.type_name}({', '.join([*given, *arguments])}) -> {', '.join(_first(list(map(repr, f.specs))))}>"


def _function_html(f: Function) -> str:
    named = list(zip(f.op.names_of(len(f.inputs)), f.inputs, strict=True))
    rows = [(name, _input_text(x)) for name, x in named[:_MOST_SHOWN]]
    if len(named) > _MOST_SHOWN:
        rows.append(("", f"and {len(named) - _MOST_SHOWN} more"))
    rows += [(name, value_text(value)) for name, value in f.args.items()]
    rows += [("gives", ", ".join(_first(list(map(repr, f.specs))))), *_where_from(f)]
    return _titled(f.op.name, rows)


provide(Variable, {"__repr__": _variable_text, "_repr_html_": _variable_html})
provide(Function, {"__repr__": _function_text, "_repr_html_": _function_html})


def _input_text(x: Variable) -> str:
    name = f"{quoted(x.name)}, " if x.name else ""
    return f"{name}{x.spec} " + ("(leaf)" if x.parent is None else f"from {x.parent.op.name}")


def _where_from(f: Function) -> list[tuple[str, str]]:
    """Table rows: the order of differentiation, and where the function was written."""
    rows = []
    origin = f.origin
    if f.order:
        of = "" if origin is None else f", part of the gradient of {origin.op.name}"
        rows.append(("order", f"{f.order}{of}"))
    place: SourceLocation | None = getattr(f, "location", None)
    if place is not None:
        rows.append(("requested at" if f.order else "written at", str(place)))
    return rows


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


def unit_of_bytes(nbytes: float) -> tuple[float, str]:
    """A suitable unit for a number of bytes, and its name."""
    for size, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(nbytes) >= size:
            return size, name
    return 1.0, "B"


def shown_bytes(nbytes: float, digits: int = 3) -> str:
    """A number of bytes in a suitable unit."""
    size, name = unit_of_bytes(nbytes)
    return f"{nbytes / size:.{digits}g} {name}"


def as_html(text: str) -> str:
    """Text for a notebook, in a fixed-width font."""
    return f'<pre style="line-height:1.35;overflow-x:auto;white-space:pre">{html.escape(text)}</pre>'


def _titled(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """A table below a title, for a notebook; a cell may have several lines."""
    lines = [(name if i == 0 else "", line) for name, text in rows for i, line in enumerate(text.split("\n"))]
    return as_html("\n".join([title, *aligned(lines)]))
