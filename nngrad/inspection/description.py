"""describe: what is known of each function of a graph, once, for whatever shows graphs: columns, one entry a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

from ..autodiff.request import variables
from ..graph import Function, Op, Spec, Variable, functions_of
from ..graph.block import Block
from ..graph.body_op import ControlOp, Within
from ..graph.shortening import argument_text
from ..graph.source_location import SourceLocation
from .cost import Cost, applications_of, cost_of
from .formulas import formula_of
from .naming import Names, Parameters, parameter_names
from .recomputation import State, states_of
from .scoping import scopes_of


class Kind(IntEnum):
    """What a node is."""

    FUNCTION = 0
    LEAF = 1
    PARAMETER = 2
    CONSTANT = 3
    """A function without inputs."""
    LOOP = 4
    """A function with bodies: a loop or a branch."""
    IN_BODY = 5
    """Of a body: a function in it, or an input of it that is nothing outside."""


class BodyEntry(NamedTuple):
    """A body, as it stands below one node. The nodes of a body follow one another, and the node that has it."""

    node: int
    """The node that has it."""
    role: str
    """'body', 'condition', 'branch 1'."""
    within: Within
    runs: int
    """How often it runs when the node runs once; once, if that is not known."""
    values: dict[int, tuple[int, int]]
    """Which output of which node each value of it is, by its number (`Block`)."""


class Description:
    """What is known of the nodes of a graph. All columns are lists over the nodes, which are the leaves, and then the
    functions in the order in which they were made, each followed by what is in its bodies; so operands come before what
    reads them. Made by `describe`.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        """A name for each node, not given twice: that of a Variable, the path of a parameter, else v12. It is
        printable, and short."""
        self.results: list[tuple[str, ...]] = []
        """The names of the outputs, empty for an output that nobody reads."""
        self.ops: list[Op | None] = []
        """None for what is no function."""
        self.kinds: list[Kind] = []
        self.orders: list[int] = []
        """Orders of differentiation."""
        self.specs: list[tuple[Spec, ...]] = []
        """Shape and dtype of each output."""
        self.static: list[tuple[Any, ...]] = []
        """Static arguments, in the order of the op's signature."""
        self.operands: list[tuple[tuple[int, int], ...]] = []
        """Node and output of each input. That of an input of a body is what it begins as, or is a slice of."""
        self.ranks: list[int] = []
        """Length of the longest way from a leaf; in a body that of the function that has it."""
        self.functions: list[Function | None] = []
        """The function that a node is, outside of bodies."""
        self.leaves: dict[int, Variable] = {}
        """The leaves, by node."""
        self.leaf_refs: dict[int, ReferenceType[Variable]] = {}
        """The same, while they live."""
        self.needs_grad: dict[int, bool] = {}
        """Whether gradients of leaves are asked for."""
        self.origins: list[int] = []
        """The function whose backward rule emitted this one, -1 where that is none, or not in the graph."""
        self.bases: list[int] = []
        """The function at the end of the chain of origins: itself for what the user built, and -1 where that is not in
        the graph, or not known."""
        self.base_ranks: list[int] = []
        """The rank of the base, also where that lives and is not in the graph; -1 where it is not known."""
        self.rules: list[Op | None] = []
        """The op whose backward rule emitted it."""
        self.scopes: list[str] = []
        """The scope of parameters, 'conv1/bn'; empty for none. See `scopes_of`."""
        self.places: list[SourceLocation | None] = []
        """Where the user wrote it, or the function that it is the gradient of (`nn.remember_places`)."""
        self.asked: list[SourceLocation | None] = []
        """For gradients, where they were asked for."""
        self.states: list[State] = []
        """Whether it is kept for a gradient, or computed again."""
        self.bodies: list[BodyEntry] = []
        """All bodies, each after the one that it is in."""
        self.body_of: list[int] = []
        """The innermost body that a node is in, -1 for none."""
        self.begins: dict[int, str] = {}
        """For an input of a body that is nothing outside, how it comes of its operand: 'begins as', 'is a slice of'."""
        self.outputs: list[tuple[int, int]] = []
        """Node and output of each Variable that was asked about."""

    def __len__(self) -> int:
        return len(self.names)

    def forget_graph(self) -> None:
        """Let go of the functions and leaves, and with them of arrays that they may hold."""
        self.functions = [None] * len(self)
        self.leaves = {}

    @cached_property
    def runs(self) -> list[int]:
        """How often each node runs when the graph runs once; a loop of an unknown number of rounds counts one."""
        total: list[int] = []
        for entry in self.bodies:
            outer = self.body_of[entry.node]
            total.append(entry.runs * (1 if outer < 0 else total[outer]))
        return [1 if b < 0 else total[b] for b in self.body_of]

    @cached_property
    def costs(self) -> list[Cost]:
        """What each node takes one time, as `nn.count` counts it; a loop what is in it takes, at all of its steps."""
        return [self._cost(i) for i in range(len(self))]

    def _cost(self, i: int) -> Cost:
        op, given = self.ops[i], self.given(i)
        if op is None or not given:
            return Cost()
        if not isinstance(op, ControlOp):
            return cost_of(op, self.static[i], given)
        total = Cost()
        for each in applications_of(op, self.static[i], given, self.orders[i]):
            if each.cost is not None:
                total = total.plus(each.cost.times(each.runs))
        return total

    def given(self, i: int) -> tuple[Spec, ...]:
        """Shape and dtype of each input of a node."""
        return tuple([self.specs[node][output] for node, output in self.operands[i]])

    def op_name(self, i: int) -> str:
        """The name of the op of a node, empty for what is no function."""
        op = self.ops[i]
        return "" if op is None else op.name

    def arguments(self, i: int) -> str:
        """The static arguments of a node as text, 'axis=1, keepdims=True'; those of a loop are said by its bodies."""
        op = self.ops[i]
        return "" if op is None else argument_text(op, self.static[i], isinstance(op, ControlOp))

    def shape(self, i: int) -> str:
        """Shapes and dtypes of the outputs that are read, 'float32[128, 64], int32[2]'; of all, where none is."""
        specs, results = self.specs[i], self.results[i]
        read = [spec for spec, name in zip(specs, results, strict=True) if name]
        return ", ".join(map(repr, read or specs))

    def operand(self, i: int, k: int) -> str:
        """The name of input `k` of a node."""
        node, output = self.operands[i][k]
        return self.results[node][output]

    def formula(self, i: int) -> str:
        """What the backward rule that emitted a node computes; empty for what no rule has emitted."""
        op = self.rules[i]
        return "" if op is None else formula_of(op)


def describe(outputs: Variable | Iterable[Variable], parameters: Parameters = None) -> Description:
    """What is known of each function that computes `outputs`. Nothing is run, and each function is looked at once.

    Args:
        outputs: A Variable or Variables.
        parameters: Names of parameters, as `nn.get_parameters()` gives them; those that are registered have their
            names in any case.

    Raises:
        TypeError: Something is not a Variable, or `parameters` no dict of Variables by name.
        ValueError: There are no outputs.
    """
    listed = variables(outputs, "outputs")
    if not listed:
        raise ValueError("outputs: there are none, and so no graph; give at least one Variable")
    return _Describing(listed, parameter_names(parameters)).run()


class _Describing:
    """Fills the columns: nodes first, then what follows from where they come from."""

    def __init__(self, outputs: Sequence[Variable], parameters: Mapping[int, str]) -> None:
        self._outputs = outputs
        self._parameters = parameters
        self._made = Description()
        self._names = Names()
        self._at: dict[Any, int] = {}
        """The node of a function, or of a leaf by its id."""
        self._read: set[Any] = set()
        """The outputs that are read, by function and index."""

    def run(self) -> Description:
        """The description."""
        made = self._made
        functions = as_made(functions_of(self._outputs))
        self._leaves(functions)
        read = self._read
        for f in functions:
            for x in f.inputs:
                if x.parent is not None:
                    read.add((x.parent, x.index))
        read.update([(y.parent, y.index) for y in self._outputs if y.parent is not None])
        for f in functions:
            self._function(f)
        made.outputs = [self._value(y) for y in self._outputs]
        self._where_from()
        made.states = states_of(made.functions, self._at)
        made.scopes = scopes_of(made, self._parameters)
        return made

    def _value(self, x: Variable) -> tuple[int, int]:
        return self._at[id(x) if x.parent is None else x.parent], x.index

    # ---------------------------------------------------------------- nodes

    def _leaves(self, functions: Sequence[Function]) -> None:
        leaves = {id(y): y for y in self._outputs if y.parent is None}
        for f in functions:
            for x in f.inputs:
                if x.parent is None:
                    leaves[id(x)] = x
        for x in leaves.values():
            path = self._parameters.get(id(x._data))
            name = self._names.given(path or x.name) if path or x.name else self._names.new("leaf")
            kind = Kind.LEAF if path is None else Kind.PARAMETER
            node = self._node(None, (), (), x.spec.alone, (name,), kind, 0, 0, -1)
            self._at[id(x)] = node
            self._made.leaves[node] = x
            self._made.leaf_refs[node] = ref(x)
            self._made.needs_grad[node] = bool(x.need_grad)

    def _function(self, f: Function) -> None:
        op, at = f.op, self._at
        operands = tuple([(at[id(x)], 0) if x.parent is None else (at[x.parent], x.index) for x in f.inputs])
        names = []
        for k, output in enumerate(f._outputs):
            y = output()
            name = "" if y is None else y.name
            if (f, k) not in self._read:
                names.append("")
            else:
                names.append(self._names.given(name) if name else self._names.new("v"))
        kind = Kind.LOOP if isinstance(op, ControlOp) else Kind.FUNCTION if operands else Kind.CONSTANT
        node = self._node(op, f.arguments, operands, f.specs, tuple(names), kind, f.order, f.rank + 1, -1, f)
        at[f] = node
        if isinstance(op, ControlOp):
            self._bodies(node)

    def _node(
        self, op: Op | None, arguments: tuple[Any, ...], operands: tuple[tuple[int, int], ...],
        specs: tuple[Spec, ...], results: tuple[str, ...], kind: Kind, order: int, rank: int, body: int,
        f: Function | None = None,
    ) -> int:  # fmt: skip
        made = self._made
        node = len(made.names)
        name = next(filter(None, results), "")
        made.names.append(name or self._names.new("v"))
        made.results.append(results)
        made.ops.append(op)
        made.kinds.append(kind)
        made.orders.append(order)
        made.specs.append(specs)
        made.static.append(arguments)
        made.operands.append(operands)
        made.ranks.append(rank)
        made.body_of.append(body)
        made.functions.append(f)
        made.places.append(None)
        return node

    # ---------------------------------------------------------------- bodies

    def _bodies(self, node: int) -> None:
        made = self._made
        op, operands = made.ops[node], made.operands[node]
        assert isinstance(op, ControlOp)
        for within in op.within(made.static[node], len(operands)):
            self._body(node, within, operands)

    def _body(self, node: int, within: Within, given: Sequence[tuple[int, int]]) -> None:
        made, body = self._made, within.body
        number, rank, order = len(made.bodies), made.ranks[node], made.orders[node]
        values: dict[int, tuple[int, int]] = {}
        made.bodies.append(BodyEntry(node, within.role, within, within.runs, values))
        for i, (name, taken) in enumerate(zip(within.inputs, within.taken, strict=True)):
            kind = name.rstrip("0123456789")
            values[i] = given[taken]
            if kind in OF_THE_BODY:
                own = self._names.new(kind)
                values[i] = self._node(None, (), (given[taken],), body.inputs[i].alone, (own,), Kind.IN_BODY, order,
                                       rank, number), 0  # fmt: skip
                made.begins[values[i][0]] = OF_THE_BODY[kind]
        self._steps(number, body, within, made.results[node], rank)

    def _steps(self, number: int, body: Block, within: Within, asked: Sequence[str], rank: int) -> None:
        """Enter the functions of a body; `asked` has a name for each output of the function that somebody reads."""
        made, values = self._made, self._made.bodies[number].values
        wanted = {value for (_, value), name in zip(within.gives, asked, strict=False) if name}
        read = {i for _, _, ins in body.steps for i in ins}.union(body.outputs, wanted)
        places = body.places or (None,) * len(body.steps)
        columns = body.steps, body.orders, places, body.results, body.outs
        for (op, arguments, ins), order, place, specs, numbers in zip(*columns, strict=True):
            names = tuple([self._names.new("v") if n in read else "" for n in numbers])
            node = self._node(op, arguments, tuple([values[i] for i in ins]), specs, names, Kind.IN_BODY, order, rank,
                              number)  # fmt: skip
            made.places[node] = place
            values.update({n: (node, k) for k, n in enumerate(numbers)})
            if isinstance(op, ControlOp):  # as deep as there are loops within loops
                self._bodies(node)

    # ---------------------------------------------------------------- where it comes from

    def _where_from(self) -> None:
        made, at = self._made, self._at
        ends: dict[Function, Function] = {}
        for i, f in enumerate(made.functions):
            origin = None if f is None else f.origin
            if f is None or origin is None:
                known = f is not None and f.order == 0
                made.origins.append(-1)
                made.bases.append(i if known else -1)
                made.base_ranks.append(made.ranks[i] if known else -1)
                made.rules.append(None)
                if f is not None:
                    own = getattr(f, "place", None)
                    made.places[i] = own if f.order == 0 else None
                    made.asked.append(own if f.order else None)
                else:
                    made.asked.append(None)
                continue
            base = _end_of(origin, ends)
            known = base.order == 0  # else what it was emitted for is gone
            made.origins.append(at.get(origin, -1))
            made.bases.append(at.get(base, -1) if known else -1)
            made.base_ranks.append(base.rank + 1 if known else -1)
            # A copy that computes something again has what it copies as its origin, and is of the same order.
            made.rules.append(origin.op if f.order > origin.order else None)
            made.places[i] = getattr(base, "place", None)
            made.asked.append(getattr(f, "place", None))
        self._in_bodies()

    def _in_bodies(self) -> None:
        """What is in a body stands beside the function that has it, and comes of the same."""
        made = self._made
        for i, kind in enumerate(made.kinds):
            if kind is Kind.IN_BODY:
                node = made.bodies[made.body_of[i]].node
                made.bases[i] = i if made.orders[i] == 0 else made.bases[node]
                made.base_ranks[i] = made.base_ranks[node]
                made.places[i] = made.places[i] or made.places[node]
                made.asked[i] = made.asked[node]


def as_made(functions: Sequence[Function]) -> list[Function]:
    """Functions in the order in which they were made, as a program would have them: what the user has built as it was
    built, and then gradients. Where links were changed afterwards (`rewire_on`), as they are given."""
    listed = sorted(functions, key=attrgetter("serial"))
    rewired = any([x.parent is not None and x.parent.serial > f.serial for f in listed for x in f.inputs])
    return list(functions) if rewired else listed


def _end_of(f: Function, ends: dict[Function, Function]) -> Function:
    """The function at the end of the chain of origins."""
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
"""Inputs of bodies that are nothing outside, with how they come of what is outside."""
