"""What was emitted for a request, written down without the graph that it was emitted for."""

from __future__ import annotations

import fractions
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ..graph import Function, Op, RuleCall, Variable
from ..graph.function import Blueprint, CallOf, make
from .request import Derivation, Remembered, Route, remembered_of
from .structure import Structure

Numbers = tuple[int, ...]


class Results(NamedTuple):
    """What is handed out for a request."""

    gradients: list[Variable]
    kept: dict[Variable, Variable]
    """The Variables that keep a gradient, each with it."""
    lost: list[int]
    """The positions of the inputs that no gradient can reach, where that is asked."""


class DerivationOf(NamedTuple):
    """What gradients are known to be derivatives of."""

    outputs: Numbers
    inputs: Numbers
    seeds: tuple[int | None, ...]
    stops: Numbers
    route: Route
    order: int


class Recording(NamedTuple):
    """An answer without its graph. Values are numbered: those of the graph that are read, then those that are made."""

    reads: tuple[tuple[int, int], ...]
    """Of which function of the structure, and which of its outputs; or -1 and which leaf."""
    blueprints: tuple[Blueprint, ...]
    calls: tuple[CallOf, ...]
    gradients: Numbers
    kept: tuple[tuple[int, int], ...]
    lost: Numbers
    remembered: Remembered | DerivationOf | None
    """What the gradients know of themselves."""

    def made_for(self, structure: Structure) -> Results:
        """Returns the answer on top of another graph of that structure."""
        functions, leaves = structure.functions, structure.leaves
        values = [leaves[k] if i < 0 else functions[i].outputs[k] for i, k in self.reads]
        make(self.blueprints, self.calls, functions, values)
        gradients = [values[i] for i in self.gradients]
        known = self.remembered
        if isinstance(known, DerivationOf):
            outputs, inputs, stops = [[values[i] for i in each] for each in (known.outputs, known.inputs, known.stops)]
            seeds = [None if i is None else values[i] for i in known.seeds]
            Derivation(outputs, inputs, seeds, stops, gradients).remember(known.route, known.order)
        else:
            for gx in gradients:
                gx._derived = known
        return Results(gradients, {values[i]: values[k] for i, k in self.kept}, list(self.lost))


def is_ours(f: Function) -> bool:
    """Whether nothing of the user's has a part in `f`."""
    return _is_plain(f.op) and all(map(_is_plain, f.arguments)) and not hasattr(f, "place")


_OURS = ("nngrad.", "backward_registry.")
_PLAIN = int | float | str | None | fractions.Fraction | np.dtype


def _is_plain(value: Any) -> bool:
    """Whether it is an op of nngrad's, or a static argument that holds no code of the user's."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    if isinstance(value, Op):
        return value.tables is None and value.is_own
    own = type(value).__module__.startswith(_OURS) and not getattr(value, "opaque", False)
    return own or isinstance(value, _PLAIN)


class Writer:
    """Writes down what was just emitted.

    Args:
        structure: The structure of the request.
        results: The answer to it.
        since: The serial number from which on functions were made for it.
    """

    def __init__(self, structure: Structure, results: Results, since: int) -> None:
        self._structure = structure
        self._results = results
        self._since = since
        self._places = {f: i for i, f in enumerate(structure.functions)}
        self._emitted = self._new_functions()
        self._places |= {f: ~i for i, f in enumerate(self._emitted)}
        """The place of a function in the structure, or ~ that among what was emitted."""
        # Once the function is gone that a rule was called for, nothing is seen of the call.
        calls = {f.call: f.call.function for f in self._emitted if f.call is not None}
        self._calls: dict[RuleCall, int] = {
            call: self._places[f] for call, f in calls.items() if f is not None and f in self._places
        }
        self._read: dict[tuple[int, int], int] = {}
        self._first: dict[Function, int] = {}

    def recording(self) -> Recording | None:
        """Returns the recording; None if this cannot be made again."""
        gradients, kept, lost = self._results
        given = {id(gx) for gx in gradients}
        if not all(map(is_ours, self._structure.functions)):
            return None
        if not all([self._can_be_made(f, given) for f in self._emitted]):
            return None
        known = remembered_of(gradients[0]) if gradients else None
        derivation = None if known is None else known.derivation
        of = [derivation.outputs, derivation.inputs, derivation.seeds, derivation.stops] if derivation else []
        mentioned = [x for f in self._emitted for x in f.inputs]
        for each in (gradients, kept, kept.values(), *[call.grad_outputs for call in self._calls], *of):
            mentioned += [x for x in each if x is not None]
        if not all(map(self._enter, mentioned)):
            return None
        count = len(self._read)
        for f in self._emitted:
            self._first[f] = count
            count += len(f.specs)
        numbers = self._numbers_of
        numbered = {call: i for i, call in enumerate(self._calls)}
        blueprints = [
            Blueprint(
                f.op, f.arguments, numbers(f.inputs), f.specs, f.rank, f.order, f.context,
                -1 if f.call is None else numbered.get(f.call, -1),
            )
            for f in self._emitted
        ]
        remembered: Remembered | DerivationOf | None = known
        if known is not None and derivation is not None:
            outputs, inputs, seeds, stops = map(numbers, of)
            remembered = DerivationOf(outputs, inputs, seeds, stops, known.route, known.order)
        return Recording(
            tuple(self._read),
            tuple(blueprints),
            tuple([(place, numbers(call.grad_outputs)) for call, place in self._calls.items()]),
            numbers(gradients),
            tuple(zip(numbers(kept), numbers(kept.values()), strict=True)),
            tuple(lost),
            remembered,
        )

    def _new_functions(self) -> list[Function]:
        """The functions that the answer depends on and the structure does not have, in the order in which they were
        made."""
        found: dict[Function, None] = {}
        waiting = [*self._results.gradients, *self._results.kept.values()]
        while waiting:
            f = waiting.pop().parent
            if f is not None and f not in self._places and f not in found:
                found[f] = None
                waiting += f.inputs
                waiting += [] if f.call is None else [gy for gy in f.call.grad_outputs if gy is not None]
        return sorted(found, key=lambda f: f.serial)

    def _can_be_made(self, f: Function, gradients: set[int]) -> bool:
        """Whether there is nothing about an emitted function but what a blueprint says."""
        plain = f.serial >= self._since and is_ours(f) and not f.effects and f.mark is None
        return plain and all([
            y._need_grad is None and not y.persistent and (remembered_of(y) is None or id(y) in gradients)
            for y in f.outputs
        ])

    def _enter(self, x: Variable) -> bool:
        """Give what is read of the graph a number. Returns whether `x` is of the structure or was emitted: a leaf
        that a rule brings in belongs to one graph alone."""
        f = x.parent
        if f is None:
            if not self._structure.knows(x):
                return False
            self._read.setdefault((-1, self._structure.number(x)), len(self._read))
            return True
        place = self._places.get(f)
        if place is not None and place >= 0:
            self._read.setdefault((place, x.index), len(self._read))
        return place is not None

    def _numbers_of(self, variables: Iterable[Variable | None]) -> tuple[Any, ...]:
        return tuple([None if x is None else self._number(x) for x in variables])

    def _number(self, x: Variable) -> int:
        f = x.parent
        if f is None:
            return self._read[-1, self._structure.number(x)]
        place = self._places[f]
        return self._first[f] + x.index if place < 0 else self._read[place, x.index]
