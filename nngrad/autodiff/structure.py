"""The structure of a request: all that decides what is emitted for it, without the graph.

Requests of one structure get gradients that are the same graph, each on top of its own. The structure is the program of
what the request is about, and what routes and rules look at besides: orders, stops, effects, devices, which leaves
share their data, and what results of `grad` are the gradients of.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from backward_registry import registry

from ..execution.lower import ProgramWriter
from ..graph import Function, Variable, build_options, functions_of
from .request import Derivation, Remembered, Request, remembered_of


class Structure:
    """The structure of a request, with the functions and leaves that it has there.

    Args:
        request: What is asked for.
        functions: What its outputs depend on, lowest rank first.
        since: Functions from this serial number on were made for the request itself.
        options: What else decides.
    """

    __slots__ = ("_derivations", "_remembered", "_stops", "_writer", "functions", "key", "leaves")

    key: Hashable
    """The structure without the graph; None where something in it is marked to be computed again."""
    functions: list[Function]
    """All that the request is about, each after what it depends on."""
    leaves: list[Variable]

    def __init__(self, request: Request, functions: list[Function], since: int, options: Hashable) -> None:
        self._writer = writer = ProgramWriter([])
        self.functions, self.leaves = [], writer.leaves
        self._stops: list[int] = []
        self._derivations: dict[Derivation, int] = {}
        self._remembered: list[tuple[int, Remembered]] = []
        about: list[Sequence[Variable | None]] = [
            request.outputs, request.inputs, request.stops, request.seeds, request.initial,
        ]
        self._write(functions)
        waiting = [x for each in about[1:] for x in each if x is not None]
        known: list[Derivation] = []
        while True:
            new = [*self._derivations][len(known) :]
            known += new
            waiting += [x for derivation in new for each in _variables_of(derivation) for x in each if x is not None]
            more = functions_of(waiting, through=lambda x: x.parent not in writer.first)
            if not more and not new:
                break
            self._write(more)
            waiting = []
        asked = [self._numbers_of(each) for each in about]
        derivations = [tuple([self._numbers_of(each) for each in _variables_of(derivation)]) for derivation in known]
        results = [self._of_result(*each) for each in self._remembered]
        functions = self.functions
        # What was just made for the request may be handed out as it is; what was there already may not.
        given = any([x is not None for each in about[3:] for x in each])
        own = [i for i, f in enumerate(functions) if f.serial >= since] if given else []
        in_force = build_options()
        body = in_force.body  # in which what updates a leaf is not differentiated
        effects = [(i, body is not None and f.serial > body) for i, f in enumerate(functions) if f.effects]
        contexts = [f.context for f in functions]
        context = contexts[0] if contexts else None
        elsewhere = [] if all([each is context for each in contexts]) else contexts
        marked = any([f.mark is not None for f in functions])
        self.key = None if marked else (
            tuple(writer.steps), tuple([f.order for f in functions]), tuple([x.spec for x in writer.leaves]),
            tuple(self._stops), tuple(effects), context, tuple(elsewhere), tuple(own),
            tuple(asked), tuple(derivations), tuple(results), self._sharing(request.inputs),
            request.retain, request.unreachable, request.coordinates,
            options, in_force.context, in_force.simplify, registry.version,
        )

    def number(self, x: Variable) -> int:
        """Returns the number of a leaf, which it gets when it is met for the first time, or of what a function gives:
        output k of the functions, counted through all of them, is ~k."""
        return self._writer.number(x)

    def knows(self, leaf: Variable) -> bool:
        """Whether a leaf has a number already."""
        return id(leaf) in self._writer.numbers

    def _numbers_of(self, variables: Iterable[Variable | None]) -> tuple[int | None, ...]:
        return tuple([None if x is None else self.number(x) for x in variables])

    def _write(self, functions: list[Function]) -> None:
        """Append functions, and see at which of their outputs gradients stop, and which are results of `grad`."""
        writer = self._writer
        writer.write(functions)
        self.functions += functions
        for f in functions:
            for ref in f._outputs:
                y = ref()
                if y is not None:
                    if y._need_grad is False:
                        self._stops.append(writer.number(y))
                    if f.order and (remembered := remembered_of(y)) is not None:
                        self._remembered.append((writer.number(y), remembered))
                        if remembered.derivation is not None:
                            self._derivations.setdefault(remembered.derivation, len(self._derivations))

    def _of_result(self, number: int, remembered: Remembered) -> Hashable:
        derivation, x = remembered.derivation, remembered.input
        if derivation is None or x is None:
            return number, remembered
        return number, self._derivations[derivation], self.number(x), remembered.route, remembered.order

    def _sharing(self, inputs: Sequence[Variable]) -> Hashable:
        """Which leaves share the data of those among `inputs`: one that is not in a graph stands for those that are."""
        cells = {id(x._data) for x in inputs if x.parent is None and x._data is not None}
        by_cell: dict[int, list[int]] = {}
        for i, x in enumerate(self.leaves):
            if id(x._data) in cells:
                by_cell.setdefault(id(x._data), []).append(i)
        return tuple([tuple(each) for each in by_cell.values() if len(each) > 1])


def _variables_of(derivation: Derivation) -> Sequence[Sequence[Variable | None]]:
    """All that a derivation refers to."""
    results = [ref() for ref in derivation.results]
    return derivation.outputs, derivation.inputs, derivation.stops, derivation.seeds, results
