"""`describe`: the facts about each node of a graph as columns, for everything that displays graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

from ..extend import (
    Block,
    Closing,
    ControlOp,
    Function,
    Op,
    SourceLocation,
    Spec,
    Variable,
    Within,
    as_made,
    contained,
    functions_of,
    pause_collector,
    variables,
)
from .cost import Tally, applications_of, cost_of
from .naming import Names, Parameters, formula_of, parameter_names, scopes_of
from .recomputation import State, states_of
from .shown import argument_text


class Kind(IntEnum):
    """The kind of a node."""

    FUNCTION = 0
    LEAF = 1
    PARAMETER = 2
    CONSTANT = 3
    """A function without inputs."""
    LOOP = 4
    """A function with bodies: a loop or a branch."""
    IN_BODY = 5
    """In a body: a function, or an input such as a carry that does not exist outside."""


class BodyEntry(NamedTuple):
    """A body of one node. The nodes of a body are consecutive, and follow the node that owns it."""

    node: int
    """The node that owns it."""
    role: str
    """Such as 'body', 'condition' or 'branch 1'."""
    within: Within
    runs: int
    """How often it runs per run of the node; 1 if unknown."""
    values: dict[int, tuple[int, int]]
    """The node and output of each of its values, by number in the `Block`."""


class Description:
    """The facts about the nodes of a graph, made by `describe`. All columns are lists over the nodes: first the leaves,
    then the functions in the order of their creation, each followed by the nodes of its bodies. So operands precede
    their readers."""

    def __init__(self, block: Block) -> None:
        self.block = block
        """The closed block of leaves and functions outside of bodies."""
        self.names: list[str] = []
        """A unique, printable and short name for each node: the Variable's, the path of a parameter, or one such as
        v12."""
        self.results: list[tuple[str, ...]] = []
        """The names of the outputs; empty for an output without readers."""
        self.ops: list[Op | None] = []
        """None for nodes that are not functions."""
        self.kinds: list[Kind] = []
        self.orders: list[int] = []
        """Orders of differentiation."""
        self.specs: list[tuple[Spec, ...]] = []
        """Shape and dtype of each output."""
        self.static: list[tuple[Any, ...]] = []
        """Static arguments, in the order of the op's signature."""
        self.operands: list[tuple[tuple[int, int], ...]] = []
        """Node and output of each input. The operand of a body's input is its initial value, or the array it slices."""
        self.ranks: list[int] = []
        """Length of the longest path from a leaf; in a body that of its owner."""
        self.functions: list[Function | None] = []
        """The Function of each node outside of bodies."""
        self.leaves: dict[int, Variable] = {}
        """The leaves, by node."""
        self.needs_grad: dict[int, bool] = {}
        """`need_grad` of leaves."""
        self.origins: list[int] = []
        """The function whose backward rule emitted this one; -1 if there is none in the graph."""
        self.bases: list[int] = []
        """The last function in the chain of origins: the node itself if the user built it, -1 if unknown or not in the
        graph."""
        self.base_ranks: list[int] = []
        """The rank of the base, even if that is alive but not in the graph; -1 if unknown."""
        self.rules: list[Op | None] = []
        """The op whose backward rule emitted it."""
        self.scopes: list[str] = []
        """The parameter scope, such as 'conv1/bn'; empty for none. See `scopes_of`."""
        self.locations: list[SourceLocation | None] = []
        """The source line of the node, or of the function whose gradient it is (`nn.source_locations`)."""
        self.asked: list[SourceLocation | None] = []
        """For gradients, the source line that requested them."""
        self.states: list[State] = []
        """Whether it is kept for a gradient, or rematerialised."""
        self.bodies: list[BodyEntry] = []
        """All bodies, each after the one that contains it."""
        self.body_of: list[int] = []
        """The innermost body that contains a node; -1 for none."""
        self.begins: dict[int, str] = {}
        """For an input of a body, such as a carry, its relation to its operand: 'begins as' or 'is a slice of'."""
        self.outputs: list[tuple[int, int]] = []
        """Node and output of each described Variable."""

    def __len__(self) -> int:
        return len(self.names)

    def forget_graph(self) -> None:
        """Release the functions and leaves, and the arrays that they hold."""
        self.functions = [None] * len(self)
        self.leaves = {}

    @cached_property
    def members(self) -> dict[int, list[int]]:
        """The nodes of each body by its number; those in no body under -1."""
        return _grouped(self.body_of)

    @cached_property
    def bodies_of(self) -> dict[int, list[int]]:
        """The numbers of each node's bodies."""
        return _grouped([entry.node for entry in self.bodies])

    @cached_property
    def top(self) -> list[int]:
        """The functions outside of bodies."""
        return [i for i in self.members.get(-1, ()) if self.ops[i] is not None]

    @cached_property
    def runs(self) -> list[int]:
        """How often each node runs when the graph runs once; loops of unknown length count one step."""
        total: list[int] = []
        for entry in self.bodies:
            outer = self.body_of[entry.node]
            total.append(entry.runs * (1 if outer < 0 else total[outer]))
        return [1 if b < 0 else total[b] for b in self.body_of]

    @cached_property
    def costs(self) -> list[Tally]:
        """The cost of one run of each node, as in `nn.count`; a loop costs its body times its steps."""
        return [self._cost(i) for i in range(len(self))]

    def _cost(self, i: int) -> Tally:
        op, total = self.ops[i], Tally()
        if op is None or not isinstance(op, ControlOp):
            return total if op is None or not self.operands[i] else cost_of(op, self.static[i], self.given(i))
        for application in applications_of(op, self.static[i], self.given(i), self.orders[i]):
            if application.cost is not None:
                total = total.plus(application.cost.times(application.runs))
        return total

    def given(self, i: int) -> tuple[Spec, ...]:
        """Shape and dtype of each input of a node."""
        return tuple([self.specs[node][output] for node, output in self.operands[i]])

    def op_name(self, i: int) -> str:
        """The name of a node's op; empty for leaves."""
        op = self.ops[i]
        return "" if op is None else op.name

    def arguments(self, i: int) -> str:
        """The static arguments of a node as text, such as 'axis=1, keepdims=True', without its bodies."""
        op = self.ops[i]
        return "" if op is None else argument_text(op, self.static[i], isinstance(op, ControlOp))

    def shape(self, i: int) -> str:
        """Shapes and dtypes of the outputs that are read, e.g. 'float32[128, 64], int32[2]'; of all if none is."""
        specs, results = self.specs[i], self.results[i]
        read = [spec for spec, name in zip(specs, results, strict=True) if name]
        return ", ".join(map(repr, read or specs))

    def operand(self, i: int, k: int) -> str:
        """The name of input `k` of a node."""
        node, output = self.operands[i][k]
        return self.results[node][output]

    def formula(self, i: int) -> str:
        """The formula of the backward rule that emitted a node; empty if no rule did."""
        op = self.rules[i]
        return "" if op is None else formula_of(op)


def _grouped(keys: Sequence[int]) -> dict[int, list[int]]:
    """The positions at which each number occurs."""
    places: dict[int, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    return places


@contained
def describe(outputs: Variable | Iterable[Variable], parameters: Parameters = None) -> Description:
    """Describe each function that computes `outputs`. Nothing is run, and each function is visited once.

    Args:
        outputs: A Variable or Variables.
        parameters: Parameters by name, as returned by `nn.get_parameters()`; registered parameters keep their names in
            any case.

    Raises:
        TypeError: Something is not a Variable, or `parameters` is not a dict of Variables by name.
        ValueError: There are no outputs.
    """
    pause_collector()
    listed = variables(outputs, "outputs")
    if not listed:
        raise ValueError("outputs: expected at least one Variable, got none")
    return _Describing(listed, parameter_names(parameters)).run()


class _Describing:
    """Numbers the nodes of a block and of the bodies within it, and collects the facts that a block lacks."""

    def __init__(self, outputs: Sequence[Variable], parameters: Mapping[int, str]) -> None:
        self._names = Names()
        closing = Closing(dict.fromkeys([y for y in outputs if y.parent is None]))
        closing.write(as_made(functions_of(outputs)))
        # A name with a scope belongs to an unregistered parameter, such as those of a Module.
        unregistered = {id(x.cell): x.name for x in closing.leaves if "/" in x.name}
        self._parameters = {**unregistered, **parameters}
        self._closing = closing
        self._described = d = Description(closing.block(closing.numbers(outputs)))
        self._columns: tuple[list[Any], ...] = (
            d.names, d.results, d.ops, d.kinds, d.orders, d.specs, d.static, d.operands,
            d.ranks, d.functions, d.body_of, d.locations,
        )  # fmt: skip

    def run(self) -> Description:
        """Make the description."""
        d, closing = self._described, self._closing
        values = {i: (self._leaf(x), 0) for i, x in enumerate(closing.leaves)}
        names = {number: x.name for x, number in closing.items() if x.name}
        self._steps(d.block, values, names, closing.functions)
        d.outputs = [values[n] for n in d.block.outputs]
        at = {f: i for i, f in enumerate(d.functions) if f is not None}
        sources = self._where_from(at)
        d.states = states_of(d.functions, at)
        d.scopes = scopes_of(d, sources, self._parameters)
        return d

    def _node(self, *values: Any) -> int:
        """Append a node: one value for each column."""
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)
        return len(self._described) - 1

    def _leaf(self, x: Variable) -> int:
        d, path = self._described, self._parameters.get(id(x.cell))
        name = self._names.given(path or x.name) if path or x.name else self._names.new("leaf")
        kind = Kind.LEAF if path is None else Kind.PARAMETER
        node = self._node(name, (name,), None, kind, 0, x.spec.alone, (), (), 0, None, -1, None)
        d.leaves[node], d.needs_grad[node] = x, bool(x.need_grad)
        return node

    def _steps(
        self, block: Block, values: dict[int, tuple[int, int]], names: Mapping[int, str],
        functions: Sequence[Function] = (), body: int = -1, wanted: Iterable[int] = (),
    ) -> None:  # fmt: skip
        """Add the steps of a block and of the bodies within it; recursion is as deep as loops are nested.

        Args:
            block: The block.
            values: The node and output of each input, by number; those of the steps are added.
            names: Names of values, by number.
            functions: The function of each step; empty for a body.
            body: The number of the body; -1 for the graph itself.
            wanted: Numbers of values that are read in addition to the outputs.
        """
        read = {i for _, _, ins in block.steps for i in ins}.union(block.outputs, wanted)
        locations = block.places or (None,) * len(block.steps)
        columns = block.steps, block.orders, locations, block.results, block.outs
        for k, ((op, arguments, ins), order, location, specs, numbers) in enumerate(zip(*columns, strict=True)):
            results = tuple([self._name_of(names.get(n)) if n in read else "" for n in numbers])
            name = next(filter(None, results), "") or self._names.new("v")
            operands = tuple([values[i] for i in ins])
            if functions:
                f, rank = functions[k], functions[k].rank + 1
                kind = Kind.LOOP if isinstance(op, ControlOp) else Kind.FUNCTION if ins else Kind.CONSTANT
            else:
                f, rank, kind = None, self._described.ranks[self._described.bodies[body].node], Kind.IN_BODY
            node = self._node(name, results, op, kind, order, specs, arguments, operands, rank, f, body, location)
            for output, n in enumerate(numbers):
                values[n] = node, output
            if isinstance(op, ControlOp):
                for within in op.within(arguments, len(ins)):
                    self._body(node, within)

    def _name_of(self, name: str | None) -> str:
        return self._names.given(name) if name else self._names.new("v")

    def _body(self, owner: int, within: Within) -> None:
        d, bodies = self._described, self._described.bodies
        operands, results = d.operands[owner], d.results[owner]
        order, rank = d.orders[owner], d.ranks[owner]
        values: dict[int, tuple[int, int]] = {}
        number = len(bodies)
        bodies.append(BodyEntry(owner, within.role, within, within.runs, values))
        for i, (name, taken) in enumerate(zip(within.inputs, within.taken, strict=True)):
            kind, values[i] = name.rstrip("0123456789"), operands[taken]
            if kind in OF_THE_BODY:
                local, spec = self._names.new(kind), within.body.inputs[i].alone
                node = self._node(
                    local, (local,), None, Kind.IN_BODY, order, spec, (), (operands[taken],), rank, None, number, None
                )
                values[i] = node, 0
                d.begins[node] = OF_THE_BODY[kind]
        returned = zip(within.gives, results, strict=False)
        wanted = [value for (_, value), name in returned if name and value is not None]
        self._steps(within.body, values, {}, (), number, wanted)

    def _where_from(self, at: Mapping[Function, int]) -> list[Function | None]:
        """Add the origin of each node; nodes of a body have the origin of its owner.

        Returns:
            The last function in each node's chain of origins.
        """
        d, ends, sources = self._described, dict[Function, Function](), list[Function | None]()
        for i, f in enumerate(d.functions):
            source, order = None if f is None else f.origin, d.orders[i]
            place = d.locations[i] if f is None else getattr(f, "location", None)
            end, origin, base, rank, rule, location, requested = f, -1, -1, -1, None, None, None
            if d.body_of[i] >= 0:
                owner = d.bodies[d.body_of[i]].node
                base = i if order == 0 else d.bases[owner]
                rank, location, requested = d.base_ranks[owner], place or d.locations[owner], d.asked[owner]
            elif f is not None and source is None:
                base, rank, location, requested = (i, d.ranks[i], place, None) if order == 0 else (-1, -1, None, place)
            elif source is not None:
                end = _end_of(source, ends)
                if end.order == 0:  # otherwise its forward function no longer exists
                    base, rank = at.get(end, -1), end.rank + 1
                origin, location, requested = at.get(source, -1), getattr(end, "location", None), place
                # The origin of a rematerialising copy is the copied function, which has the same order.
                rule = source.op if order > source.order else None
            sources.append(end)
            d.origins.append(origin)
            d.bases.append(base)
            d.base_ranks.append(rank)
            d.rules.append(rule)
            d.locations[i] = location
            d.asked.append(requested)
        return sources


def _end_of(f: Function, ends: dict[Function, Function]) -> Function:
    """The last function in the chain of origins."""
    passed = []
    while f not in ends:
        passed.append(f)
        origin = f.origin
        if origin is None:
            ends[f] = f
            break
        f = origin
    end = ends[f]
    ends.update(dict.fromkeys(passed, end))
    return end


OF_THE_BODY = {"carry": "begins as", "slice": "is a slice of"}
"""Inputs that exist only in bodies, with their relation to their operand outside."""
