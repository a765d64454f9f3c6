"""show: a graph as text, one line for each function, and the bodies of loops and branches below them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count as numbers_from
from typing import Any, NamedTuple

from ..autodiff.request import variables
from ..graph import Op, Spec, Variable, functions_of, leaves_of
from ..graph.body import Body
from ..graph.within import Within

_WIDEST = 72
"""Columns after which shapes are not lined up any more."""


class Line(NamedTuple):
    """A line of a listing."""

    depth: int
    """How many bodies it is in."""
    text: str
    shapes: str
    """Shapes and dtypes of what it names."""
    order: int
    """Order of differentiation."""


class Listing(NamedTuple):
    """A graph as text; `str()` of it is the text."""

    lines: tuple[Line, ...]

    def __str__(self) -> str:
        texts = ["    " * line.depth + line.text for line in self.lines]
        width = min(max([len(t) for t, line in zip(texts, self.lines, strict=True) if line.shapes], default=0), _WIDEST)
        rows = []
        for text, line in zip(texts, self.lines, strict=True):
            order = f"  order {line.order}" * (line.order > 0)
            rows.append(f"{text.ljust(width)}  {line.shapes}{order}" if line.shapes else text)
        return "\n".join(rows)


def show(outputs: Variable | Iterable[Variable]) -> Listing:
    """The graph that computes `outputs` as text: `print(nn.show(y))`.

    There is a line for each leaf and for each function, in an order in which they can run: what it gives, what it is
    applied to, its arguments, shapes and dtypes, and the order of differentiation if that is not 0. Below a loop or a
    branch is its body, indented, with what its inputs are. Of the outputs of a function those have names that are read.
    Nothing is run.

    Args:
        outputs: A Variable or Variables.

    Returns:
        A `Listing`.

    Raises:
        TypeError: Something is not a Variable.
    """
    listed = variables(outputs, "outputs")
    functions = functions_of(listed)
    writer = _Writer()
    names: dict[Any, str] = {}
    for x in leaves_of(listed):
        names[_key(x)] = writer.leaf(x)
    read = {_key(x) for x in [*listed, *[x for f in functions for x in f.inputs]]}
    for f in functions:
        writer.function(
            f.op, f.arguments, [names[_key(x)] for x in f.inputs], f.specs,
            [(f, i) in read for i in range(len(f.specs))], f.order, 0,
        )  # fmt: skip
        names.update({(f, i): name for i, name in enumerate(writer.named)})
    writer.line(0, "results: " + ", ".join([names[_key(y)] for y in listed]))
    return Listing(tuple(writer.lines))


def _key(x: Variable) -> Any:
    return id(x) if x.parent is None else (x.parent, x.index)


class _Writer:
    """Writes the lines, and gives names."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.named: list[str] = []
        """The names of the outputs of the function that was written last, empty where nobody reads one."""
        self._numbers = {"leaf": numbers_from(), "v": numbers_from()}
        self._taken: set[str] = set()

    def line(self, depth: int, text: str, specs: Sequence[Spec] = (), order: int = 0) -> None:
        """Write a line."""
        self.lines.append(Line(depth, text, ", ".join(map(repr, specs)), order))

    def new(self, kind: str) -> str:
        """A name that there is not yet."""
        numbers = self._numbers.setdefault(kind, numbers_from())
        name = next(name for i in numbers for name in [f"{kind}{i}"] if name not in self._taken)
        self._taken.add(name)
        return name

    def leaf(self, x: Variable) -> str:
        """Write a leaf, and return its name."""
        if x.name and x.name not in self._taken:
            name = x.name
            self._taken.add(name)
        else:
            name = self.new(x.name or "leaf")
        self.line(0, f"{name} = leaf" + ", needs a gradient" * bool(x.need_grad), [x.spec])
        return name

    def function(
        self, op: Op, arguments: tuple[Any, ...], inputs: Sequence[str], specs: Sequence[Spec],
        read: Sequence[bool], order: int, depth: int,
    ) -> None:  # fmt: skip
        """Write a function, with its bodies.

        Args:
            op: Its op.
            arguments: Its static arguments.
            inputs: The names of its inputs.
            specs: Shape and dtype of each output.
            read: Which outputs somebody reads.
            order: Its order of differentiation.
            depth: In how many bodies it is.
        """
        named = [self.new("v") if is_read else "" for is_read in read]
        plain = [
            f"{name}={value!r}" for name, value in op.named(arguments).items()
            if value is True or not (op.in_steps or value is None or value is False)  # a loop's are said with its body
        ]
        results = ", ".join([name for name in named if name]) or "_"
        shown = [spec for spec, is_read in zip(specs, read, strict=True) if is_read]
        self.line(depth, f"{results} = {op.name}({', '.join([*inputs, *plain])})", shown, order)
        for within in () if op.in_steps is None else op.in_steps.within(arguments, len(inputs)):
            self._body(within, inputs, named, depth)
        self.named = named

    def _body(self, within: Within, inputs: Sequence[str], results: Sequence[str], depth: int) -> None:
        body = within.body
        own: dict[str, str] = {}
        said = []
        for name, i in zip(within.inputs, within.taken, strict=True):
            kind = name.rstrip("0123456789")
            own[name] = inputs[i] if kind not in _OF_THE_BODY else self.new(kind)
            if kind in _OF_THE_BODY:
                said.append(f"{own[name]} {_OF_THE_BODY[kind]} {inputs[i]}")
        times = f", {within.runs} times" if within.runs != 1 else ""
        self.line(depth, f"  {within.role}{times}" + (": " if said else "") + "; ".join(said))
        names = self._steps(body, [own[name] for name in within.inputs], [bool(y) for y in results], within, depth + 1)
        ends = [
            f"{own[name]} becomes {names[number]}" if name in own else f"goes on while {names[number]}"
            for name, number in zip(within.outputs, body.outputs, strict=True)
            if name in own or not within.gives
        ]
        gives = [
            f"{result} is {names[number]} {how}".rstrip()
            for result, (how, number) in zip(results, within.gives, strict=False)
            if result
        ]
        if ends or gives:
            self.line(depth + 1, "; ".join([*ends, *gives]))

    def _steps(
        self, body: Body, inputs: Sequence[str], asked: Sequence[bool], within: Within, depth: int
    ) -> Mapping[int, str]:
        """Write the functions of a body, and return the names of its inputs and values by their numbers."""
        names = dict(enumerate(inputs))
        wanted = {number for (_, number), is_asked in zip(within.gives, asked, strict=False) if is_asked}
        read = {i for _, _, ins in body.steps for i in ins}.union(body.outputs, wanted)
        made = 0
        for (op, arguments, ins), order in zip(body.steps, body.orders, strict=True):
            specs = op.result_specs(tuple([body.spec(i) for i in ins]), arguments)
            numbers = [~(made + k) for k in range(len(specs))]
            made += len(specs)
            # as deep as there are loops within loops
            self.function(op, arguments, [names[i] for i in ins], specs, [n in read for n in numbers], order, depth)
            names.update(zip(numbers, self.named, strict=True))
        return names


_OF_THE_BODY = {"carry": "begins as", "slice": "is a slice of"}
"""Inputs of bodies that are nothing outside, with how they come of what is outside."""
