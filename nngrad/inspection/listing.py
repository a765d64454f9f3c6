"""`show`: a graph as a readable program, one line per function, with the bodies of loops and branches below them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..extend import Variable, check_bool, did_you_mean
from .description import Description, describe
from .folding import folds_of
from .lines import Line, Writer
from .naming import Parameters
from .printed import Printed
from .recomputation import State

COLUMNS = {
    "origin": "the function whose backward rule a gradient comes from",
    "state": "whether a value is kept for a gradient, or computed again for it",
    "scope": "the scope of parameters",
    "rule": "what that backward rule computes",
    "location": "the line of your program",
}
"""The optional columns of a listing, with descriptions."""


class Listing(Printed):
    """A graph as text, fitted to the width of the terminal. With `rich` and in notebooks each order of differentiation
    has a colour.

    `listing.text(width)` is the text in a given number of columns.
    """

    def __init__(self, lines: Iterable[Line], columns: Sequence[str], described: Description) -> None:
        self.lines = tuple(lines)
        """The lines."""
        self.columns = tuple(columns)
        """The names of the columns that are shown."""
        self.described = described
        """The description of the graph, without its Variables."""

    def __repr__(self) -> str:
        functions = sum([op is not None for op in self.described.ops])
        return f"<listing of {functions} functions in {len(self.lines)} lines; print it>"


def show(
    outputs: Variable | Iterable[Variable], columns: str | Iterable[str] | None = None, *, fold: bool = True,
    parameters: Parameters = None,
) -> Listing:  # fmt: skip
    """The graph that computes `outputs` as text: `print(nn.show(y))`.

    Each leaf and each function has a line, in the order of their creation: its results, its inputs, arguments, shapes
    and dtypes, and the order of differentiation if that is not 0. A function without inputs is a constant. The body of
    a loop or a branch is indented below it, with the operands of its inputs. Repeated blocks of functions, such as the
    layers of a network, are written once, with the number of repetitions and the values that differ between them. Only
    outputs that are read have names. Nothing is run.

    On a terminal (with `rich.print`) and in notebooks, each order of differentiation has a colour.

    Args:
        outputs: A Variable or Variables.
        columns: Further columns, "all" or some of: "origin", the function whose backward rule a gradient comes from;
            "state", which values are kept for gradients and which are rematerialised; "scope", the parameter scope;
            "rule", what the backward rule computes; "location", the line of your program, if recorded
            (`nn.source_locations`). By default all columns with something to show, except "rule".
        fold: Whether to write repeated blocks once.
        parameters: Names of unregistered parameters, such as a module's: `model.get_parameters()`.

    Returns:
        A `Listing`.

    Raises:
        TypeError: Something is not a Variable, or another argument has the wrong type.
        ValueError: There is no such column, or there are no outputs.
    """
    check_bool(fold, "fold")
    asked = _checked_columns(columns)
    described = describe(outputs, parameters)
    shown = asked if asked is not None else _informative_columns(described)
    lines = tuple(Writer(described, shown, folds_of(described) if fold else []).lines())
    described.forget_graph()
    return Listing(lines, shown, described)


def _checked_columns(columns: Any) -> tuple[str, ...] | None:
    if columns is None:
        return None
    if columns == "all":
        return tuple(COLUMNS)
    names = [columns] if isinstance(columns, str) else columns
    if not isinstance(names, Iterable):
        raise TypeError(f"columns: expected names of columns, got {columns!r}")
    listed = list(names)
    for name in listed:
        if name not in COLUMNS:
            hint = did_you_mean(str(name), COLUMNS) or f'; expected {", ".join(COLUMNS)} or "all"'
            raise ValueError(f"columns: there is no column {name!r}{hint}")
    return tuple([name for name in COLUMNS if name in listed])


def _informative_columns(described: Description) -> tuple[str, ...]:
    """The columns that have something to show for this graph."""
    says = {
        "origin": True,
        "state": not {State.AGAIN, State.COPY}.isdisjoint(described.states),
        "scope": any([scope for scope, op in zip(described.scopes, described.ops, strict=True) if op is not None]),
        "location": any([at for at, body in zip(described.locations, described.body_of, strict=True) if body < 0]),
    }
    return tuple([name for name in COLUMNS if says.get(name)])
