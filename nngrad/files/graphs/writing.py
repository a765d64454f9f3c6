"""A graph as JSON tables: numbers, strings, and names of registered ops.

Values are numbered as in a program: leaf i is i, and the k-th of all outputs of all functions is ~k.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

from backward_registry import registry

from ...extend import (
    Block,
    Closing,
    Derivation,
    NdArray,
    Op,
    ResultDerivation,
    Spec,
    Value,
    Variable,
    as_made,
    close_with_derivations,
    functions_of,
    key_of,
    on_host,
    operands_first,
)
from ...random import place_of_source
from .static_arguments import NotSerializable, argument_to_json


def bodies_within(arguments: Iterable[Any]) -> list[Block]:
    """The bodies in static arguments, including those in nested tuples."""
    waiting, found = list(arguments), []
    while waiting:
        value = waiting.pop()
        if isinstance(value, tuple):
            waiting += value
        elif isinstance(value, Block):
            found.append(value)
    return found


class _Tables:
    """The tables of ops, specs and kinds that functions refer to by number, without duplicates."""

    def __init__(self) -> None:
        self.ops: dict[Op, int] = {}
        self.specs: dict[Spec, int] = {}
        self.definitions: list[dict[str, Any]] = []
        """Ops with static arguments, and bodies; each refers only to earlier ones."""
        self._bodies: dict[Block, int] = {}
        self._kinds: dict[tuple[Op, tuple[Any, ...]], int] = {}

    def op(self, op: Op) -> int:
        """The number of an op.

        Raises:
            NotSerializable: Another process could not find it by name.
        """
        number = self.ops.get(op)
        if number is None:
            try:
                known = registry.op(op.name) is op
            except KeyError:
                known = False
            if not known or op.tables is not None:
                raise NotSerializable(f"the function {op.name}, which is not registered by that name")
            number = self.ops[op] = len(self.ops)
        return number

    def spec(self, spec: Spec) -> int:
        """The number of a shape and dtype."""
        return self.specs.setdefault(spec, len(self.specs))

    def kind(self, op: Op, arguments: tuple[Any, ...]) -> int:
        """The number of an op with its static arguments."""
        key = op, tuple(map(key_of, arguments))
        number = self._kinds.get(key)
        if number is None:
            for body in operands_first(bodies_within(arguments)[::-1], _bodies_of):
                if body not in self._bodies:
                    row = self._row(body)
                    self._bodies[body] = len(self.definitions)
                    self.definitions.append(row)
            row = {"op": self.op(op), "arguments": self._arguments(op, arguments)}
            number = self._kinds[key] = len(self.definitions)
            self.definitions.append(row)
        return number

    def _row(self, body: Block) -> dict[str, Any]:
        steps = [[self.kind(op, arguments), list(ins)] for op, arguments, ins in body.steps]
        return {
            "inputs": list(map(self.spec, body.inputs)), "steps": steps, "orders": list(body.orders),
            "outputs": list(body.outputs), "stops": sorted(body.stop_gradients),
        }  # fmt: skip

    def _arguments(self, op: Op, arguments: tuple[Any, ...]) -> list[Any]:
        row = []
        for name, argument in zip(op.argument_names, arguments, strict=True):
            try:
                row.append(argument_to_json(argument, self.op, self._bodies.__getitem__))
            except NotSerializable as error:
                raise NotSerializable(f"{op.name}, whose argument {name!r} has {error}") from None
        return row

    def rows(self) -> dict[str, Any]:
        """The tables as JSON values."""
        return {
            "ops": [{"name": op.name, "arguments": list(op.argument_names)} for op in self.ops],
            "specs": [[spec.dtype.name, list(spec.shape)] for spec in self.specs],
            "definitions": self.definitions,
        }  # fmt: skip


def _bodies_of(body: Block) -> list[Block]:
    return [inner for _, arguments, _ in body.steps for inner in bodies_within(arguments)]


class GraphWriter:
    """Records everything that Variables depend on, and how its gradients were derived.

    Args:
        roots: The Variables.
    """

    def __init__(self, roots: Sequence[Variable]) -> None:
        self._tables = _Tables()
        self.closing = closing = Closing()
        """The closed graph."""
        self._derivations = close_with_derivations(closing, as_made(functions_of(roots)), roots, _groups)
        self._places = {f: i for i, f in enumerate(closing.functions)}
        closing.numbers(roots)

    def written(self) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
        """The JSON tables, and the arrays by name.

        Raises:
            NotSerializable: Something in the graph cannot be stored in a file.
        """
        tables, closing = self._tables, self.closing
        functions = closing.functions
        rows: dict[str, Any] = {
            "kinds_of_functions": [tables.kind(op, arguments) for op, arguments, _ in closing.steps],
            "inputs_of_functions": [list(ins) for _, _, ins in closing.steps],
            "specs_of_functions": [list(map(tables.spec, f.specs)) for f in functions],
            "orders_of_functions": [f.order for f in functions],
            "effects": [[i, [[closing[leaf], k] for leaf, k in f.effects]]
                        for i, f in enumerate(functions) if f.effects],
            "tags": self._tags(),
            "variables": [[closing[y], y.name, bool(y.persistent), y.need_grad_set]
                          for f in functions for y in f.living_outputs()
                          if y.name or y.persistent or y.need_grad_set is not None],
            "derivations": [self._derivation(each) for each in self._derivations],
            "results_of_grad": list(map(self._result, closing.derived)),
        }  # fmt: skip
        rows["calls"], rows["calls_of_functions"] = self._calls()
        rows["leaves"], rows["cells"], arrays = self._leaves()
        return {**rows, **tables.rows()}, arrays

    def _derivation(self, derivation: Derivation) -> list[Any]:
        results = [self._if_there(ref()) for ref in derivation.results]
        return [*map(self.closing.numbers, _groups(derivation)), self.closing.numbers(results)]

    def _if_there(self, x: Variable | None) -> Variable | None:
        """`x` if it is a leaf or in the graph."""
        return x if x is None or x.parent is None or x.parent in self._places else None

    def _result(self, y: Variable) -> list[Any]:
        derivation, x, mode, order, unknown, before = cast(ResultDerivation, y.derived_by)
        of = None if derivation is None else self._derivations[derivation]
        return [*self.closing.numbers([y]), of, *self.closing.numbers([x]), list(mode), order, unknown,
                sorted([[n, *earlier] for n, earlier in before])]

    def _calls(self) -> tuple[list[Any], list[int]]:
        """The calls of backward rules, each with its function and gradients; and, for each function, the call that
        emitted it, or -1."""
        calls: dict[Any, int] = {}
        rows: list[Any] = []
        numbers = []
        for f in self.closing.functions:
            call, origin = f.call, f.origin
            if call is None or origin not in self._places:
                numbers.append(-1)
                continue
            if call not in calls:
                calls[call] = len(calls)
                rows.append([self._places[origin], self.closing.numbers(map(self._if_there, call.grad_outputs))])
            numbers.append(calls[call])
        return rows, numbers

    def _tags(self) -> list[Any]:
        rows = []
        for i, tags in [(i, tags) for i, f in enumerate(self.closing.functions) if (tags := f.tags)]:
            try:
                if not all([isinstance(name, str) for name in tags]):
                    raise NotSerializable("names that are not strings")
                rows.append([i, {name: self._plain(tag) for name, tag in tags.items()}])
            except NotSerializable as error:
                raise NotSerializable(f"the tags of {self.closing.functions[i].op.name}, which have {error}") from None
        return rows

    def _plain(self, value: Any) -> Any:
        return argument_to_json(value, self._tables.op)

    def _leaves(self) -> tuple[list[Any], list[Any], dict[str, np.ndarray[Any, Any]]]:
        """The leaves, the cells that hold their data, and the arrays in these."""
        cells: dict[NdArray, int] = {}
        leaves = []
        for x in self.closing.leaves:
            source = None
            if x.key_source is not None:
                source = place_of_source(x.key_source)
                if source is None:
                    raise NotSerializable("a leaf that a user's function draws at each forward()")
            cell = cells.setdefault(x.cell, len(cells))
            leaves.append([cell, x.name, x.need_grad, bool(x.persistent), source])
        held = [(i, cell) for cell, i in cells.items() if not cell.is_zero]
        arrays = Value.read([cell for _, cell in held])
        by_name = {f"{i}": on_host(array) for (i, _), array in zip(held, arrays, strict=True)}
        rows = [[self._tables.spec(cell.spec), self._plain(cell.axes)] for cell in cells]
        return leaves, rows, by_name


def _groups(derivation: Derivation) -> tuple[Sequence[Variable | None], ...]:
    return derivation.outputs, derivation.inputs, derivation.seeds, derivation.stop_gradients
