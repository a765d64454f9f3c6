"""Display Variables and Functions, on one line and as tables in notebooks. Nothing is computed for that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .elsewhere import no_attribute
from .shortening import printable, quoted, value_text
from .source_location import SourceLocation
from .tables import html_table, titled
from .traverse import functions_of
from .value import is_shared, on_host

if TYPE_CHECKING:
    from .function import Function
    from .variable import Variable

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


class ShownVariable:
    """The display of a Variable, and errors for attributes that it lacks."""

    __slots__ = ()

    if not TYPE_CHECKING:  # checkers of types say it themselves

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # a protocol that is asked for
                raise AttributeError(f"a Variable has no attribute {name!r}")
            known = [attribute for attribute in dir(type(self)) if not attribute.startswith("_")]
            raise no_attribute(f"a Variable has no attribute {name!r}", name, known, nnabla="nnabla.Variable")

    def __repr__(self) -> str:
        x = cast("Variable", self)
        name = f" {quoted(x.name)}" if x.name else ""
        value = _value_of(x)
        head = f"<Variable{name} {x.spec} ({_kind_of(x)})"
        if value is None:
            return f"{head}>"
        return f"{head} = {array_text(value)}{f' ({_OLD})' if _is_old(x) else ''}>"

    def _repr_html_(self) -> str:
        x = cast("Variable", self)
        rows = [("shape", str(list(x.shape))), ("dtype", x.dtype.name)]
        if x.parent is None:
            rows.append(("leaf", "gradients are asked for" if x._need_grad else "no gradient is asked for"))
        else:
            rows += [("computed by", printable(repr(x.parent), LONGEST)), *_where_from(x.parent)]
        value = _value_of(x)
        if value is not None:
            rows.append(("value", np.array2string(value, threshold=_MOST_ELEMENTS, max_line_width=100)))
            rows += [("", _OLD)] * _is_old(x)
        elif x.parent is not None:
            rows.append(("value", "not computed yet"))
        name = f" {quoted(x.name)}" if x.name else ""
        return titled(f"Variable{name}", html_table(rows))


def _kind_of(x: Variable) -> str:
    if x.parent is None:
        return "leaf, need_grad" if x._need_grad else "leaf"
    return f"{x.parent.op.type_name}, rank {x.rank}"


def _value_of(x: Variable) -> np.ndarray[Any, Any] | None:
    """The value of a Variable, if it is computed."""
    cell = x._data
    return None if cell is None or cell.is_deferred or cell.is_empty else cell.view


_OLD = "leaves have changed since"


def _is_old(x: Variable) -> bool:
    """Whether a leaf that the value of `x` was computed from has since been changed by the user, not by the graph."""
    state = x._at
    changed = set() if state is None else {
        id(leaf) for leaf, before in zip(state.leaves, state.arrays, strict=True) if _has_changed(leaf, before)
    }
    if not changed:
        return False
    functions = functions_of([x])
    changed -= {id(leaf) for f in functions for leaf, _ in f.effects}
    return any([id(leaf) in changed for f in functions for leaf in f.inputs])


def _has_changed(leaf: Variable, before: Any) -> bool:
    """Whether a leaf's numbers differ from the array `before`, or that is gone, which is None."""
    cell = leaf.cell
    if before is None or cell.is_deferred:
        return True
    if cell.is_zero:
        return bool(np.any(on_host(before)))
    now = cell._value.array if cell._value.has_view else cell.raw()
    return now is not before and (is_shared(now) or on_host(now).tobytes() != on_host(before).tobytes())


class ShownFunction:
    """The display of a Function."""

    __slots__ = ()

    def __repr__(self) -> str:
        f = cast("Function", self)
        given = _first([repr(x.spec) for x in f.inputs])
        arguments = [f"{name}={value_text(value)}" for name, value in f.args.items()]
        # A loop may have many results: a stack of each value in its body.
        return f"<{f.op.type_name}({', '.join([*given, *arguments])}) -> {', '.join(_first(list(map(repr, f.specs))))}>"

    def _repr_html_(self) -> str:
        f = cast("Function", self)
        named = list(zip(f.op.names_of(len(f.inputs)), f.inputs, strict=True))
        rows = [(name, _input_text(x)) for name, x in named[:_MOST_SHOWN]]
        if len(named) > _MOST_SHOWN:
            rows.append(("", f"and {len(named) - _MOST_SHOWN} more"))
        rows += [(name, value_text(value)) for name, value in f.args.items()]
        rows += [("gives", ", ".join(_first(list(map(repr, f.specs))))), *_where_from(f)]
        return titled(f.op.name, html_table(rows))


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
        rows.append(("asked for at" if f.order else "written at", str(place)))
    return rows


def _first(texts: Sequence[str]) -> list[str]:
    """The first few texts, and how many more there are."""
    more = len(texts) - _MOST_SHOWN
    return [*texts[:_MOST_SHOWN], *([f"and {more} more"] if more > 0 else [])]
