"""`show`: a graph as a readable program, one line per function, with the bodies of loops and branches below them; and
the difference of two graphs."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from ..extend import Variable, check_bool, checked_count, did_you_mean
from .cost import Tally, applications_in, short_number, tally_of
from .description import Description, describe
from .folding import folds_of
from .lines import Line, Part, Writer
from .matching import matching
from .naming import Names, Parameters
from .printed import Printed
from .recomputation import State


class Difference(Printed):
    """The difference of two graphs. In its text (`str()`), lines with functions only in the first graph begin with '-',
    and those only in the second with '+'. Common values have their names in the first graph."""

    def __init__(
        self, before: Listing, after: Listing, marked: Sequence[tuple[str, Line]], context: int | None
    ) -> None:
        self.lines = tuple([line for _, line in marked])
        """All lines of both graphs."""
        self.marks = tuple([mark for mark, _ in marked])
        """'-', '+' or ' ' for each line."""
        self._described = before.described, after.described
        self._context = context

    def __bool__(self) -> bool:
        """Whether the graphs differ."""
        return any([mark != " " for mark in self.marks])

    @cached_property
    def before(self) -> Tally:
        """The cost of the first graph, as in `nn.count`."""
        return tally_of(applications_in(self._described[0].block))

    @cached_property
    def after(self) -> Tally:
        """The cost of the second graph."""
        return tally_of(applications_in(self._described[1].block))

    @property
    def summary(self) -> str:
        """Both costs in one line."""
        said = [("functions", "functions"), ("products", "matrix_products"), ("convolutions", "convolutions"),
                ("FLOPs", "flops"), ("bytes", "bytes")]  # fmt: skip
        pairs = [(title, getattr(self.before, name), getattr(self.after, name)) for title, name in said]
        return ", ".join([f"{title} {_changed(x, y)}" for title, x, y in pairs if x or y])

    def __repr__(self) -> str:
        return f"<difference of two graphs: {self.summary or 'no functions'}>"

    def _shown(self) -> tuple[list[Line], list[str]]:
        """The lines that differ, with some context."""
        if self._context is None:
            return list(self.lines), list(self.marks)
        near = bytearray(len(self.marks))
        for i, mark in enumerate(self.marks):
            if mark != " ":
                first, last = max(0, i - self._context), min(len(near), i + self._context + 1)
                near[first:last] = b"\1" * (last - first)
        lines: list[Line] = []
        marks: list[str] = []
        left_out = 0
        for is_near, mark, line in zip([*near, 1], [*self.marks, ""], [*self.lines, None], strict=True):
            if not is_near:
                left_out += 1
                continue
            if left_out:
                lines.append(Line(0, (Part(f"… {left_out} line{'s' * (left_out > 1)} the same"),)))
                marks.append(" ")
                left_out = 0
            if line is not None:
                lines.append(line)
                marks.append(mark)
        return lines, marks


def _changed(before: int, after: int) -> str:
    if before == after:
        return f"{short_number(before)} as before"
    share = f" ({(after - before) / before:+.0%})" if before else ""
    return f"{short_number(before)} → {short_number(after)}{share}"


def _renamed(a: Description, b: Description, here: dict[int, int]) -> Description:
    """The second graph with the first one's names for common values, and new names for the rest."""
    names = Names()
    for name in (*a.names, *[name for results in a.results for name in results[1:] if name]):
        names.given(name)
    renamed = copy.copy(b)
    renamed.results, renamed.names = [], []
    for j, own in enumerate(b.results):
        i = here.get(j)
        theirs = ("",) * len(own) if i is None else a.results[i]
        results = tuple([
            "" if not name else there or names.like(name) for name, there in zip(own, theirs, strict=True)
        ])  # fmt: skip
        renamed.results.append(results)
        renamed.names.append(next(filter(None, results), b.names[j]))
    return renamed


def _merged(old: Writer, new: Writer, there: dict[int, int], here: dict[int, int]) -> Iterator[tuple[str, Line]]:
    """The lines of both graphs in the order of the second; lines only in the first follow their predecessors."""
    gone: dict[int, list[int]] = {-1: []}
    before = -1
    for i in old.nodes:
        if i in there:
            before = there[i]
            gone[before] = []
        else:
            gone[before].append(i)
    yield from [("-", line) for i in gone[-1] for line in old.node_lines(i)]
    for j in new.nodes:
        theirs = [line for i in (here.get(j),) if i is not None for line in old.node_lines(i)]
        yield from _either(theirs, list(new.node_lines(j)))
        yield from [("-", line) for i in gone.get(j, ()) for line in old.node_lines(i)]
    yield from _either([old.results()], [new.results()])


def _either(before: list[Line], after: list[Line]) -> list[tuple[str, Line]]:
    """The lines of one node in both graphs; a single copy if they are equal."""
    if _compared(before) == _compared(after):
        return [(" ", line) for line in after]
    return [*[("-", line) for line in before], *[("+", line) for line in after]]


def _compared(lines: list[Line]) -> Any:
    return [(line.depth, line.parts, line.shapes) for line in lines]


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

    `listing.text(width)` is the text in a given number of columns, and `listing.diff(other)` compares it with another
    graph.
    """

    def __init__(self, lines: Iterable[Line], columns: Sequence[str], described: Description) -> None:
        self.lines = tuple(lines)
        """The lines."""
        self.columns = tuple(columns)
        """The names of the columns that are shown."""
        self.described = described
        """The description of the graph, without its Variables."""

    def _shown(self) -> tuple[Sequence[Line], Sequence[str]]:
        return self.lines, ()

    def diff(self, other: Listing, context: int | None = 2) -> Difference:
        """Compare with another graph: which functions are gone and which are new. Functions match if they compute the
        same from the same values, whatever their names or positions in the text.

            plain = nn.show(nn.grad(loss, weights))
            again = nn.show(nn.grad(loss, weights, recompute="sqrt"))
            print(plain.diff(again))

        Args:
            other: The listing of the other graph.
            context: The number of equal lines to show around changes; None for all.

        Raises:
            TypeError: `other` is not a listing, or `context` is not an int.
            ValueError: `context` is negative.
        """
        if not isinstance(other, Listing):
            raise TypeError(f"other: expected a listing, nn.show(...), got {type(other).__name__}")
        if context is not None:
            checked_count(context, "context", 0, " or None")
        a, b = self.described, other.described
        there = matching(a, b)
        here = {j: i for i, j in there.items()}
        columns = [name for name in self.columns if name in other.columns and name != "location"]
        old, new = Writer(a, columns), Writer(_renamed(a, b, here), columns)
        return Difference(self, other, list(_merged(old, new, there, here)), context)

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
