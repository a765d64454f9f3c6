"""The lines of a listing, and their writer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, NamedTuple

from .description import OF_THE_BODY, BodyEntry, Description, Kind
from .recomputation import State

_MOST_OPERANDS = 12
"""The maximum number of operands that are listed for a function."""
_MOST_RESULTS = 40
"""The maximum number of results of a graph that are listed."""

_STATES = {State.KEPT: "kept", State.AGAIN: "computed again", State.COPY: "a copy"}


class Line(NamedTuple):
    """A line of a listing."""

    depth: int
    """The number of enclosing bodies."""
    text: str
    """The text without columns."""
    order: int = 0
    """Order of differentiation."""
    cells: tuple[str, ...] = ()
    """The texts of the columns: shapes and dtypes of the values that it names, the order with its origin, whether they
    are kept or computed again, the scope, and the source line."""
    node: int = -1
    """The node that it describes."""


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
        return Line(0, f"results: {', '.join(results)}")

    # ---------------------------------------------------------------- lines

    def _leaf(self, node: int) -> Line:
        d = self._d
        is_parameter, needs_grad = d.kinds[node] is Kind.PARAMETER, d.needs_grad[node]
        needs = ", needs no gradient" if is_parameter and not needs_grad else ""
        needs = ", needs a gradient" if not is_parameter and needs_grad else needs
        text = f"{d.names[node]} = {'parameter' if is_parameter else 'leaf'}{needs}"
        return Line(0, text, cells=(repr(d.specs[node][0]), "", "", "", ""), node=node)

    def _function(self, node: int, depth: int) -> Iterator[Line]:
        d = self._d
        named = _shortened(list(filter(None, d.results[node])), _MOST_OPERANDS) or ["_"]
        operands = _shortened([self._named(*operand) for operand in d.operands[node]], _MOST_OPERANDS)
        inputs = filter(None, [*operands, d.arguments(node)])
        text = f"{', '.join(named)} = {d.op_name(node)}({', '.join(inputs)})"
        yield Line(depth, text, d.orders[node], self._cells(node), node)
        for number in d.bodies_of.get(node, ()):
            yield from self._body(number, depth)

    def _named(self, node: int, output: int) -> str:
        return self._d.results[node][output]

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
        inputs: dict[str, str] = {}
        said: list[str] = []
        for i, name in enumerate(within.inputs):
            kind = name.rstrip("0123456789")
            inputs[name] = self._named(*values[i])
            if kind in OF_THE_BODY:
                begins = self._named(*d.operands[values[i][0]][0])
                said.append(f"{inputs[name]} {OF_THE_BODY[kind]} {begins}")
        times = f", {within.runs} times" if within.runs != 1 else ""
        yield Line(depth, f"  {within.role}{times}" + (f": {'; '.join(said)}" if said else ""))
        for node in d.members.get(number, ()):
            if d.ops[node] is not None:
                yield from self._function(node, depth + 1)  # recursion is as deep as loops are nested
        ends = self._ends(entry, inputs)
        if ends:
            yield Line(depth + 1, "; ".join(ends))

    def _ends(self, entry: BodyEntry, inputs: dict[str, str]) -> list[str]:
        """The inputs of a body and its results, as text."""
        within, said = entry.within, list[str]()
        for name, number in zip(within.outputs, within.body.outputs, strict=True):
            value = self._named(*entry.values[number])
            if name in inputs:
                said.append(f"{inputs[name]} becomes {value}")
            elif not within.gives:
                said.append(f"goes on while {value}")
        for result, (how, returned) in zip(self._d.results[entry.node], within.gives, strict=False):
            if result and returned is not None:
                value = self._named(*entry.values[returned])
                said.append(f"{result} is {value} {how}".rstrip())
        return said


def _shortened(texts: list[str], most: int) -> list[str]:
    """Texts, with the middle ones replaced by their count if there are more than `most`."""
    if len(texts) <= most:
        return texts
    return [*texts[: most - 2], f"… {len(texts) - most} more", *texts[-2:]]
