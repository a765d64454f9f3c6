"""The lines of a listing, and their writer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from .description import OF_THE_BODY, BodyEntry, Description, Kind
from .recomputation import State

_MOST_OPERANDS = 12
"""The maximum number of operands that are listed for a function."""
_MOST_RESULTS = 40
"""The maximum number of results of a graph that are listed."""

_STATES = {State.KEPT: "kept", State.AGAIN: "computed again", State.COPY: "a copy"}


class Part(NamedTuple):
    """A piece of text in a line."""

    text: str
    order: int | None = None
    """The order of differentiation of the value that it names; None if it names none."""
    is_op: bool = False
    """Whether it is the name of an op."""


class Line(NamedTuple):
    """A line of a listing."""

    depth: int
    """The number of enclosing bodies."""
    parts: tuple[Part, ...]
    order: int = 0
    """Order of differentiation."""
    cells: tuple[str, ...] = ()
    """The texts of the columns: shapes and dtypes of the values that it names, the order with its origin, whether they
    are kept or computed again, the scope, and the source line."""
    node: int = -1
    """The node that it describes."""

    @property
    def text(self) -> str:
        """The text without columns."""
        return "".join([part.text for part in self.parts])


class Writer:
    """Writes the lines of a description."""

    def __init__(self, described: Description) -> None:
        self._d = described
        self._recomputes = not {State.AGAIN, State.COPY}.isdisjoint(described.states)
        outside = zip(described.locations, described.body_of, strict=True)
        self._locates = any([at for at, body in outside if body < 0])
        """Whether places outside of bodies, where they are always known, were recorded."""
        self._last_location: Any = None

    def lines(self) -> Iterator[Line]:
        """All lines."""
        for node in self._d.needs_grad:
            yield self._leaf(node)
        for node in self._d.top:
            yield from self._function(node, 0)
        yield self._results()

    def _results(self) -> Line:
        """The line of the results."""
        results = _shortened([self._named(node, output) for node, output in self._d.outputs], _MOST_RESULTS)
        return Line(0, (Part("results: "), *_separated(results)))

    # ---------------------------------------------------------------- lines

    def _leaf(self, node: int) -> Line:
        d = self._d
        is_parameter, needs_grad = d.kinds[node] is Kind.PARAMETER, d.needs_grad[node]
        needs = ", needs no gradient" if is_parameter and not needs_grad else ""
        needs = ", needs a gradient" if not is_parameter and needs_grad else needs
        what = Part(f" = {'parameter' if is_parameter else 'leaf'}{needs}")
        return Line(0, (Part(d.names[node], 0), what), cells=(repr(d.specs[node][0]), "", "", "", ""), node=node)

    def _function(self, node: int, depth: int) -> Iterator[Line]:
        d = self._d
        order = d.orders[node]
        named = _shortened([Part(name, order) for name in d.results[node] if name], _MOST_OPERANDS) or [Part("_")]
        operands = _shortened([self._named(*operand) for operand in d.operands[node]], _MOST_OPERANDS)
        arguments = d.arguments(node)
        inputs = _separated([*operands, Part(arguments)] if arguments else operands)
        parts = (*_separated(named), Part(" = "), Part(d.op_name(node), None, True), Part("("), *inputs, Part(")"))
        yield Line(depth, parts, order, self._cells(node), node)
        for number in d.bodies_of.get(node, ()):
            yield from self._body(number, depth)

    def _named(self, node: int, output: int) -> Part:
        return Part(self._d.results[node][output], self._d.orders[node])

    def _cells(self, node: int) -> tuple[str, ...]:
        d = self._d
        rule, origin = d.rules[node], d.origins[node]
        order = f"order {d.orders[node]}" if d.orders[node] else ""
        of = "" if rule is None else f"of {d.names[origin] if origin >= 0 else rule.name}"
        state = _STATES.get(d.states[node], "") if self._recomputes else ""
        return d.shape(node), f"{order} {of}".strip(), state, d.scopes[node], self._location(node)

    def _location(self, node: int) -> str:
        location = self._d.locations[node]
        again, self._last_location = location == self._last_location, location
        if location is None or not self._locates:
            return ""
        line = f"{PurePath(location.file).name}:{location.line}"
        return line if again or not location.code else f"{line}: {location.code}"

    # ---------------------------------------------------------------- bodies

    def _body(self, number: int, depth: int) -> Iterator[Line]:
        d, entry = self._d, self._d.bodies[number]
        within, values = entry.within, entry.values
        inputs: dict[str, Part] = {}
        said: list[Part] = []
        for i, name in enumerate(within.inputs):
            kind = name.rstrip("0123456789")
            inputs[name] = self._named(*values[i])
            if kind in OF_THE_BODY:
                begins = self._named(*d.operands[values[i][0]][0])
                said += [Part("; " if said else ": "), inputs[name], Part(f" {OF_THE_BODY[kind]} "), begins]
        times = f", {within.runs} times" if within.runs != 1 else ""
        yield Line(depth, (Part(f"  {within.role}{times}"), *said))
        for node in d.members.get(number, ()):
            if d.ops[node] is not None:
                yield from self._function(node, depth + 1)  # recursion is as deep as loops are nested
        ends = self._ends(entry, inputs)
        if ends:
            yield Line(depth + 1, tuple(ends))

    def _ends(self, entry: BodyEntry, inputs: dict[str, Part]) -> list[Part]:
        """The inputs of a body and its results, as text."""
        within, said = entry.within, list[list[Part]]()
        for name, number in zip(within.outputs, within.body.outputs, strict=True):
            value = self._named(*entry.values[number])
            if name in inputs:
                said.append([inputs[name], Part(" becomes "), value])
            elif not within.gives:
                said.append([Part("goes on while "), value])
        order = self._d.orders[entry.node]
        for result, (how, returned) in zip(self._d.results[entry.node], within.gives, strict=False):
            if result and returned is not None:
                value = self._named(*entry.values[returned])
                said.append([Part(result, order), Part(" is "), value, Part(f" {how}".rstrip())])
        return [part for i, parts in enumerate(said) for part in (*([Part("; ")] if i else []), *parts)]


def _shortened(parts: list[Part], most: int) -> list[Part]:
    """Parts, with the middle ones replaced by their count if there are more than `most`."""
    if len(parts) <= most:
        return parts
    return [*parts[: most - 2], Part(f"… {len(parts) - most} more"), *parts[-2:]]


def _separated(parts: Sequence[Part]) -> tuple[Part, ...]:
    return tuple([piece for i, part in enumerate(parts) for piece in ((Part(", "), part) if i else (part,))])
