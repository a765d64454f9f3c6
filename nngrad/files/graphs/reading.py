"""Rebuild a graph from the tables of an untrusted file: each entry is checked, and all shapes and dtypes are inferred
again and compared with the file's. Nothing is computed."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from backward_registry import registry

from ...extend import (
    Block,
    Derivation,
    Mode,
    NdArray,
    Op,
    ResultDerivation,
    RuleCall,
    Spec,
    Switched,
    Variable,
    contained,
    dtype_of,
    leaf_of,
    spec_of,
)
from ...random import key_source, source_at
from ..checked import NotAvailable, integer, list_of, of_type, whole_numbers
from .static_arguments import argument_from_json
from .writing import bodies_within


class _Kind(NamedTuple):
    """An op with static arguments from the file, and a cache of its inferred results."""

    op: Op
    arguments: tuple[Any, ...]
    answers: dict[tuple[Spec, ...], tuple[tuple[Any, ...], tuple[Spec, ...]]]

    def results(self, given: tuple[Spec, ...]) -> tuple[tuple[Any, ...], tuple[Spec, ...]]:
        """The checked arguments for inputs of these shapes and dtypes, and the shapes and dtypes of the results."""
        answer = self.answers.get(given)
        if answer is None:
            arguments = self.op.checked(self.arguments, len(given))
            specs = tuple(self.op.result_specs(given, arguments))
            if bodies_within(arguments) and self.op.traced_specs(given, arguments) != specs:
                raise ValueError(f"{self.op.name} cannot be applied to {given}")
            answer = self.answers[given] = arguments, specs
        return answer


class GraphReader:
    """Builds a graph from the tables of `GraphWriter`.

    Args:
        tables: The parsed JSON.
        arrays: The arrays by name.

    Raises:
        NotAvailable: The graph needs an op that is not available.
        Exception: An entry is invalid.
    """

    def __init__(self, tables: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._tables = tables
        self._specs = [
            NdArray(whole_numbers(shape, 0), dtype_of(of_type(dtype, str))).spec
            for dtype, shape in list_of(tables, "specs")
        ]
        self._ops = [_op(row) for row in list_of(tables, "ops")]
        self._definitions: list[_Kind | Block] = []
        for row in list_of(tables, "definitions"):
            self._definitions.append(self._body(row) if "steps" in row else self._kind(row))
        self._values = self._leaves(arrays)
        """All leaves, followed by all outputs of functions."""
        self._leaf_count = len(self._values)
        self._functions: list[Any] = []
        self._make_functions()
        self._note_variables()
        self._note_functions()
        self._read_calls()
        self._read_derivations()

    @property
    def leaves(self) -> list[Variable]:
        """All leaves, in order."""
        return self._values[: self._leaf_count]

    def value(self, number: Any) -> Variable:
        """The Variable with a number."""
        count = self._leaf_count
        number = integer(number, count - len(self._values), count - 1)
        found: Variable = self._values[number if number >= 0 else count + ~number]
        return found

    def leaf(self, number: Any) -> Variable:
        """The leaf with a number."""
        return self._values[integer(number, 0, self._leaf_count - 1)]

    def values(self, numbers: Any) -> list[Variable]:
        """The Variables with these numbers."""
        return [self.value(number) for number in numbers]

    def _values_or_none(self, numbers: Any) -> list[Variable | None]:
        return [None if number is None else self.value(number) for number in numbers]

    # ---------------------------------------------------------------- tables

    def _spec(self, number: Any) -> Spec:
        return self._specs[integer(number, 0, len(self._specs) - 1)]

    def _kind(self, row: Any) -> _Kind:
        op, names = self._ops[integer(row["op"], 0, len(self._ops) - 1)]
        given = list_of(row, "arguments")
        if len(given) != len(names):
            raise ValueError(f"{op.name}: expected {len(names)} arguments, got {len(given)}")
        found = [argument_from_json(each, self._definitions, self._op) for each in given]
        by_name = dict(zip(names, found, strict=True))
        values = [by_name.get(name, default) for name, default in zip(op.argument_names, op.defaults, strict=True)]
        return _Kind(op, tuple(values), {})

    def _op(self, number: Any) -> Op:
        return self._ops[integer(number, 0, len(self._ops) - 1)][0]

    def _kind_at(self, number: Any) -> _Kind:
        kind = self._definitions[integer(number, 0, len(self._definitions) - 1)]
        if not isinstance(kind, _Kind):
            raise ValueError(f"definition {number} is a body, not a function")
        return kind

    def _body(self, row: Any, leaves: Sequence[Spec] = ()) -> Block:
        """Read a body, or the whole graph, whose inputs are the leaves."""
        inputs = (*leaves, *map(self._spec, list_of(row, "inputs")))
        specs: list[Spec] = []
        steps = []
        for number, given in list_of(row, "steps"):
            kind = self._kind_at(number)
            ins = whole_numbers(given, -len(specs), len(inputs) - 1)
            arguments, made = kind.results(tuple([inputs[i] if i >= 0 else specs[~i] for i in ins]))
            steps.append((kind.op, arguments, ins))
            specs += made
        orders = whole_numbers(row["orders"], 0)
        if len(orders) != len(steps):
            raise ValueError(f"a body has {len(steps)} steps but {len(orders)} orders")
        return Block(inputs, tuple(steps), orders, whole_numbers(row["outputs"], -len(specs), len(inputs) - 1),
                     frozenset(whole_numbers(row["stops"], -len(specs), -1)))

    # ---------------------------------------------------------------- leaves

    def _leaves(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> list[Variable]:
        cells = []
        for i, (number, axes) in enumerate(list_of(self._tables, "cells")):
            spec = self._spec(number)
            array = arrays.get(str(i))
            if array is not None and spec_of(array.shape, array.dtype) is not spec:
                raise ValueError(f"array {i}: expected {spec}, got {array.dtype.name}{list(array.shape)}")
            cell = NdArray.of_spec(spec) if array is None else NdArray.of_host_array(array)
            cell.axes = _axes(argument_from_json(axes, (), self._op))
            cells.append(cell)
        if not set(arrays) <= {str(i) for i in range(len(cells))}:
            raise ValueError("some arrays belong to no leaf")
        leaves = []
        for number, name, need_grad, persistent, source in list_of(self._tables, "leaves"):
            cell = cells[integer(number, 0, len(cells) - 1)]
            x = leaf_of(cell, of_type(name, str))
            if source is not None:
                x.key_source = _source(source)
                if cell.shape != (2,) or cell.dtype != np.uint32:
                    raise ValueError(f"a random key must be uint32[2], got {cell.spec}")
            x.need_grad, x.persistent = of_type(need_grad, bool), of_type(persistent, bool)
            leaves.append(x)
        return leaves

    # ---------------------------------------------------------------- functions

    @contained
    def _make_functions(self) -> None:
        """Make all functions in order, from the columns of the file's Block."""
        Switched().from_now_on(alone=True)
        columns = "kinds", "inputs", "specs", "orders"
        kinds, inputs, results, orders = [list_of(self._tables, f"{name}_of_functions") for name in columns]
        block = self._body({
            "inputs": [], "steps": list(zip(kinds, inputs, strict=True)), "orders": orders, "outputs": [], "stops": [],
        }, [x.spec for x in self._values])  # fmt: skip
        for (op, _, _), row, specs in zip(block.steps, results, block.results, strict=True):
            if tuple(map(self._spec, row)) != specs:
                raise ValueError(f"{op.name}: the results have other shapes or dtypes than the file says")
        made = block.instantiate(self._values)
        self._values += made
        self._functions = [made[~outs[0]].parent for outs in block.outs]

    def _note_variables(self) -> None:
        for number, name, persistent, need_grad in list_of(self._tables, "variables"):
            y = self.value(number)
            y.name, y.persistent = of_type(name, str), of_type(persistent, bool)
            if need_grad is not None:
                y.need_grad = of_type(need_grad, bool)

    def _function(self, number: Any) -> Any:
        return self._functions[integer(number, 0, len(self._functions) - 1)]

    def _note_functions(self) -> None:
        for number, effects in list_of(self._tables, "effects"):
            f = self._function(number)
            pairs = [(self.leaf(leaf), integer(k, 0, len(f.specs) - 1)) for leaf, k in effects]
            if any([leaf.spec is not f.specs[k] for leaf, k in pairs]):
                raise ValueError(f"{f.op.name}: an update has another shape or dtype than its leaf")
            f.effects = tuple(pairs)
        for number, tags in list_of(self._tables, "tags"):
            self._function(number).tags = {name: argument_from_json(tag, (), self._op) for name, tag in tags.items()}

    # ---------------------------------------------------------------- derivations of gradients

    def _read_calls(self) -> None:
        calls = [RuleCall(self._function(number), self._values_or_none(gys))
                 for number, gys in list_of(self._tables, "calls")]
        numbers = whole_numbers(self._tables["calls_of_functions"], -1, len(calls) - 1)
        for f, number in zip(self._functions, numbers, strict=True):
            f.call = calls[number] if number >= 0 else None

    def _read_derivations(self) -> None:
        derivations = []
        for outputs, inputs, seeds, stops, results, *_ in list_of(self._tables, "derivations"):
            found = self._values_or_none(results)
            derivation = Derivation(self.values(outputs), self.values(inputs), self._values_or_none(seeds),
                                    self.values(stops), [x for x in found if x is not None])
            derivation.results = [_gone() if x is None else weakref.ref(x) for x in found]
            if len(derivation.seeds) != len(derivation.outputs) or len(found) != len(derivation.inputs):
                raise ValueError("a derivation must have a seed for each output and a result for each input")
            derivations.append(derivation)
        for number, of, x, mode, order, unknown, before, *_ in list_of(self._tables, "results_of_grad"):
            known = None if of is None else derivations[integer(of, 0, len(derivations) - 1)]
            earlier = frozenset([(integer(n, 0), _mode(name, reason)) for n, name, reason in before])
            self.value(number).derived_by = ResultDerivation(
                known, None if x is None else self.value(x), _mode(*mode), integer(order, 0), of_type(unknown, str),
                earlier,
            )  # fmt: skip


def _gone() -> weakref.ref[Variable]:
    """A dead weak reference."""
    return weakref.ref(Variable())


def _op(row: Any) -> tuple[Op, list[str]]:
    """An op, and the names of its arguments in the file."""
    name, given = of_type(row["name"], str), [of_type(each, str) for each in list_of(row, "arguments")]
    try:
        op = registry.op(name)
    except KeyError:
        raise NotAvailable(f"it uses the function {name!r:.80}, which is not registered") from None
    if op.name != name or op.tables is not None:
        raise ValueError(f"{name!r:.80} is not a function")
    if len(set(given)) != len(given):
        raise ValueError(f"{name}: duplicate arguments")
    new = [each for each in given if each not in op.argument_names]
    gone = [each for each, default in zip(op.argument_names, op.defaults, strict=True)
            if each not in given and default is inspect.Parameter.empty]
    if new or gone:
        raise NotAvailable(f"its function {name!r} has other arguments in this version ({', '.join(new + gone):.80})")
    return op, given


def _axes(value: Any) -> Any:
    """The mesh axes that an array is sharded over, as a cell holds them."""
    for names in value if isinstance(value, tuple) else (value,):
        for name in names if isinstance(names, tuple) else (names,):
            if name is not None and not isinstance(name, str):
                raise ValueError(f"mesh axes must be names, got {value!r:.60}")
    return value


def _source(source: Any) -> Any:
    """The generator that a key is drawn from."""
    if source == []:
        return key_source()
    seed, (start, drawn) = source
    return source_at(integer(seed, 0, 2**64 - 1), (integer(start, 0, 2**64 - 1), integer(drawn, 0)))


def _mode(name: Any, reason: Any) -> Mode:
    if name not in ("reverse", "forward", "symmetric"):
        raise ValueError(f"unknown mode of a gradient: {name!r:.40}")
    return Mode(name, of_type(reason, str))
