"""show: a graph as a readable program, one line for each function, the bodies of loops and branches below them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..graph import Variable
from ..graph.spelling import did_you_mean
from .description import Description, describe
from .difference import Difference, listing_difference
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
"""What may be said of a function beside what it computes, its shape, and its order."""


class Listing(Printed):
    """A graph as text; `str()` of it is the text, as wide as the terminal that it is printed to. With `rich` and in
    notebooks it has colours, one for each order of differentiation.

    `listing.text(width)` is the text in a given number of columns, and `listing.diff(other)` tells what is different in
    another graph.
    """

    def __init__(self, lines: Iterable[Line], columns: Sequence[str], described: Description) -> None:
        self.lines = tuple(lines)
        """The lines."""
        self.columns = tuple(columns)
        """The names of the columns that are shown."""
        self.described = described
        """What is known of the graph, without its Variables."""

    def _shown(self) -> tuple[Sequence[Line], Sequence[str]]:
        return self.lines, ()

    def diff(self, other: Listing, context: int | None = 2) -> Difference:
        """What is different in another graph: which functions are gone and which are new. Functions are matched by what
        they compute of what, not by their names or places in the text.

            plain = nn.show(nn.grad(loss, weights))
            again = nn.show(nn.grad(loss, weights, recompute="sqrt"))
            print(plain.diff(again))

        Args:
            other: The listing of the other graph.
            context: How many lines that are the same are shown around those that are not; None for all.

        Raises:
            TypeError: `other` is no listing, or `context` no int.
            ValueError: `context` is negative.
        """
        if not isinstance(other, Listing):
            raise TypeError(f"other: expected a listing, nn.show(...), got {type(other).__name__}")
        return listing_difference(self, other, context)

    def __repr__(self) -> str:
        functions = sum([op is not None for op in self.described.ops])
        return f"<listing of {functions} functions in {len(self.lines)} lines; print it>"


def show(
    outputs: Variable | Iterable[Variable], columns: str | Iterable[str] | None = None, *, fold: bool = True,
    parameters: Parameters = None,
) -> Listing:  # fmt: skip
    """The graph that computes `outputs` as text: `print(nn.show(y))`.

    There is a line for each leaf and for each function, in the order in which they were made: what it gives, what it is
    applied to, its arguments, shapes and dtypes, and the order of differentiation if that is not 0. A function without
    inputs is a constant. Below a loop or a branch is its body, indented, with what its inputs are. Blocks of functions
    that come several times, as the layers of a network do, are written once, with how often they come and what is
    another value in each. Of the outputs of a function those have names that are read. Nothing is run.

    On a terminal (with `rich.print`, or `nngrad show`) and in notebooks, each order of differentiation has its colour.

    Args:
        outputs: A Variable or Variables.
        columns: What else is shown, "all" or some of: "origin", the function whose backward rule a gradient comes from;
            "state", what is kept for gradients and what is computed again; "scope", the scope of parameters; "rule",
            what the backward rule computes; "location", the line of your program, where it was recorded
            (`nn.source_locations`). By default what there is to say of them, rules left out.
        fold: Whether blocks that repeat are written once.
        parameters: Names of parameters that are not registered, as a module's: `model.get_parameters()`.

    Returns:
        A `Listing`.

    Raises:
        TypeError: Something is not a Variable, or another argument of another type.
        ValueError: There is no such column, or there are no outputs.
    """
    if not isinstance(fold, bool):
        raise TypeError(f"fold: expected True or False, got {fold!r}")
    asked = _checked_columns(columns)
    described = describe(outputs, parameters)
    shown = asked if asked is not None else _telling(described)
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
            hint = did_you_mean(str(name), COLUMNS) or f'; there are {", ".join(COLUMNS)}, and "all"'
            raise ValueError(f"columns: there is no column {name!r}{hint}")
    return tuple([name for name in COLUMNS if name in listed])


def _telling(described: Description) -> tuple[str, ...]:
    """The columns that say something of this graph."""
    says = {
        "origin": True,
        "state": not {State.AGAIN, State.COPY}.isdisjoint(described.states),
        "scope": any([scope for scope, op in zip(described.scopes, described.ops, strict=True) if op is not None]),
        "location": any([at for at, body in zip(described.locations, described.body_of, strict=True) if body < 0]),
    }
    return tuple([name for name in COLUMNS if says.get(name)])
