"""show: a graph as a readable program, one line for each function, the bodies of loops and branches below them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from ..graph import Variable
from ..graph.spelling import did_you_mean
from .description import OF_THE_BODY, BodyEntry, Description, describe
from .folding import Fold, folds_of
from .leaf_lines import LeafLine, leaf_lines
from .naming import Parameters
from .recomputation import State

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from .difference import Difference

COLUMNS = {
    "origin": "the function whose backward rule a gradient comes from",
    "state": "whether a value is kept for a gradient, or computed again for it",
    "scope": "the scope of parameters",
    "rule": "what that backward rule computes",
    "place": "the line of your program",
}
"""What may be said of a function beside what it computes, its shape, and its order."""

_MOST_OPERANDS = 12
"""Operands of one function that are listed."""
_MOST_RESULTS = 40
"""Results of a graph that are listed."""

_STATES = {State.KEPT: "kept", State.AGAIN: "computed again", State.COPY: "a copy"}


class Part(NamedTuple):
    """Some text of a line."""

    text: str
    order: int | None = None
    """The order of differentiation of the value that it names; None where it names none."""
    is_op: bool = False
    """Whether it is the name of an op."""


class Line(NamedTuple):
    """A line of a listing."""

    depth: int
    """How many bodies and blocks it is in."""
    parts: tuple[Part, ...]
    shapes: str = ""
    """Shapes and dtypes of what it names."""
    order: int = 0
    """Order of differentiation."""
    origin: str = ""
    """What it comes from, 'of v3'."""
    cells: tuple[str, ...] = ()
    """What the other columns say."""
    node: int = -1
    """The node that it is about."""

    @property
    def text(self) -> str:
        """What it says, without shapes and columns."""
        return "".join([part.text for part in self.parts])


class Listing:
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

    def text(self, width: int | None = None) -> str:
        """The listing in at most `width` columns; None for as many as it takes.

        Raises:
            ValueError: `width` is below 20.
        """
        from .layout import lines_of_text

        return "\n".join(lines_of_text(self.lines, checked_width(width)))

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
        from .difference import difference

        if not isinstance(other, Listing):
            raise TypeError(f"other: expected a listing, nn.show(...), got {type(other).__name__}")
        return difference(self, other, context)

    def __str__(self) -> str:
        from .layout import width_of_output

        return self.text(width_of_output())

    def __repr__(self) -> str:
        functions = sum([op is not None for op in self.described.ops])
        return f"<listing of {functions} functions in {len(self.lines)} lines; print it>"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from .layout import rich_lines

        yield from rich_lines(self.lines, options.max_width)

    def _repr_html_(self) -> str:
        from .layout import html_of

        return html_of(self.lines)


def checked_width(width: Any) -> int | None:
    """A number of columns that a caller has given."""
    if width is None:
        return None
    if isinstance(width, bool) or not isinstance(width, int):
        raise TypeError(f"width: expected an int or None, got {width!r}")
    if width < _NARROWEST:
        raise ValueError(f"width: expected at least {_NARROWEST} columns, got {width}")
    return width


_NARROWEST = 20


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
            what the backward rule computes; "place", the line of your program, where it was remembered
            (`nn.remember_places`). By default what there is to say of them, rules left out.
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
        "place": any([p for p, body in zip(described.places, described.body_of, strict=True) if body < 0]),
    }
    return tuple([name for name in COLUMNS if says.get(name)])


class Writer:
    """Writes the lines of a description."""

    def __init__(self, described: Description, columns: Sequence[str], folds: Sequence[Fold] = ()) -> None:
        self._d = described
        self._columns = columns
        self._folds = {fold.nodes[0][0]: fold for fold in folds}
        self._folded = bool(folds)
        self._bodies: dict[int, list[int]] = {}
        for number, entry in enumerate(described.bodies):
            self._bodies.setdefault(entry.node, []).append(number)
        self._within: dict[int, list[int]] = {}
        for node, number in enumerate(described.body_of):
            self._within.setdefault(number, []).append(node)
        self.top = self._within.get(-1, [])
        """The nodes that are in no body."""
        self._last_place: Any = None

    def lines(self) -> Iterator[Line]:
        """All lines."""
        d, top = self._d, self.top
        leaves = [i for i in top if d.ops[i] is None]
        for leaf in leaf_lines(d, leaves, self._folded):
            yield self._leaf(leaf)
        n = len(leaves)
        while n < len(top):
            node = top[n]
            fold = self._folds.get(node)
            if fold is None:
                yield from self._function(node, 0)
                n += 1
            else:
                yield from self._fold(fold)
                n += len(fold.nodes) * len(fold.nodes[0])
        yield self.results()

    def node_lines(self, node: int) -> Iterator[Line]:
        """The lines of one node that is in no body."""
        if self._d.ops[node] is None:
            yield from map(self._leaf, leaf_lines(self._d, [node], together=False))
        else:
            yield from self._function(node, 0)

    def results(self) -> Line:
        """The line of the results."""
        results = _shortened([self._named(node, output) for node, output in self._d.outputs], _MOST_RESULTS)
        return Line(0, (Part("results: "), *_separated(results)))

    # ---------------------------------------------------------------- lines

    def _leaf(self, leaf: LeafLine) -> Line:
        name = Part(leaf.names[0], 0)
        more = (Part(", …, "), Part(leaf.names[-1], 0)) if len(leaf.names) > 1 else ()
        what, comma, gradient = leaf.what.partition(",")
        times = f"  x {len(leaf.names)}" if more else ""
        return Line(0, (name, *more, Part(f" = {what}{times}{comma}{gradient}")), repr(leaf.spec), node=leaf.node)

    def _function(self, node: int, depth: int) -> Iterator[Line]:
        d = self._d
        order = d.orders[node]
        named = _shortened([Part(name, order) for name in d.results[node] if name], _MOST_OPERANDS) or [Part("_")]
        operands = _shortened([self._named(*operand) for operand in d.operands[node]], _MOST_OPERANDS)
        arguments = d.arguments(node)
        given = _separated([*operands, Part(arguments)] if arguments else operands)
        parts = (*_separated(named), Part(" = "), Part(d.op_name(node), None, True), Part("("), *given, Part(")"))
        origin = self._origin(node) if "origin" in self._columns else ""
        yield Line(depth, parts, d.shape(node), order, origin, self._cells(node), node)
        for number in self._bodies.get(node, ()):
            yield from self._body(number, depth)

    def _named(self, node: int, output: int) -> Part:
        return Part(self._d.results[node][output], self._d.orders[node])

    def _cells(self, node: int) -> tuple[str, ...]:
        said = {"state": self._state, "scope": self._scope, "rule": self._rule, "place": self._place}
        return tuple([said[name](node) for name in self._columns if name in said])

    def _origin(self, node: int) -> str:
        d = self._d
        rule, origin = d.rules[node], d.origins[node]
        if rule is None:
            return ""
        return f"of {d.names[origin]}" if origin >= 0 else f"of {rule.name}"

    def _state(self, node: int) -> str:
        return _STATES.get(self._d.states[node], "")

    def _scope(self, node: int) -> str:
        return self._d.scopes[node]

    def _rule(self, node: int) -> str:
        return self._d.formula(node)

    def _place(self, node: int) -> str:
        place = self._d.places[node]
        again, self._last_place = place == self._last_place, place
        if place is None:
            return ""
        line = f"{PurePath(place.file).name}:{place.line}"
        return line if again or not place.code else f"{line}: {place.code}"

    # ---------------------------------------------------------------- bodies

    def _body(self, number: int, depth: int) -> Iterator[Line]:
        d, entry = self._d, self._d.bodies[number]
        within, values = entry.within, entry.values
        own: dict[str, Part] = {}
        said: list[Part] = []
        for i, name in enumerate(within.inputs):
            kind = name.rstrip("0123456789")
            own[name] = self._named(*values[i])
            if kind in OF_THE_BODY:
                begins = self._named(*d.operands[values[i][0]][0])
                said += [Part("; " if said else ": "), own[name], Part(f" {OF_THE_BODY[kind]} "), begins]
        times = f", {within.runs} times" if within.runs != 1 else ""
        yield Line(depth, (Part(f"  {within.role}{times}"), *said))
        for node in self._within.get(number, ()):
            if d.ops[node] is not None:
                yield from self._function(node, depth + 1)  # as deep as there are loops within loops
        ends = self._ends(entry, own)
        if ends:
            yield Line(depth + 1, tuple(ends))

    def _ends(self, entry: BodyEntry, own: dict[str, Part]) -> list[Part]:
        """What becomes of the inputs of a body, and what it gives."""
        within, said = entry.within, list[list[Part]]()
        for name, number in zip(within.outputs, within.body.outputs, strict=True):
            value = self._named(*entry.values[number])
            if name in own:
                said.append([own[name], Part(" becomes "), value])
            elif not within.gives:
                said.append([Part("goes on while "), value])
        order = self._d.orders[entry.node]
        for result, (how, number) in zip(self._d.results[entry.node], within.gives, strict=False):
            if result:
                value = self._named(*entry.values[number])
                said.append([Part(result, order), Part(" is "), value, Part(f" {how}".rstrip())])
        return [part for i, parts in enumerate(said) for part in (*([Part("; ")] if i else []), *parts)]

    # ---------------------------------------------------------------- blocks that repeat

    def _fold(self, fold: Fold) -> Iterator[Line]:
        d = self._d
        spans: list[list[Part]] = []
        for block in (fold.nodes[0], fold.nodes[1], fold.nodes[-1]):
            ends = [Part(d.names[node], d.orders[node]) for node in dict.fromkeys((block[0], block[-1]))]
            spans.append([ends[0], *[each for end in ends[1:] for each in (Part(" to "), end)]])
        head = [Part(f"x {len(fold.nodes)}: "), *spans[0], Part(", "), *spans[1], Part(", …, "), *spans[2]]
        yield Line(0, tuple(head))
        for node in fold.nodes[0]:
            yield from self._function(node, 1)
        for begins, inner in fold.carried:
            outer = self._named(*begins)
            yield Line(1, (Part("then "), outer, Part(" is "), self._named(*inner), Part(" of the one before")))
        for values in fold.changing:
            named = [self._named(*value) for value in values]
            others = [*named[1:2], *([Part("…")] if len(named) > 3 else []), *named[2:][-1:]]
            yield Line(1, (Part("then "), named[0], Part(" is "), *_separated(others)))


def _shortened(parts: list[Part], most: int) -> list[Part]:
    """Parts, with how many are left out in the middle where there are more than `most`."""
    if len(parts) <= most:
        return parts
    return [*parts[: most - 2], Part(f"… {len(parts) - most} more"), *parts[-2:]]


def _separated(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Parts with commas between them."""
    return tuple([each for i, part in enumerate(parts) for each in ((Part(", "), part) if i else (part,))])

