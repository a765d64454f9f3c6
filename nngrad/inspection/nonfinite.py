"""Where values that are not finite begin: functions are watched as they run, and each such value has its origin."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..execution.stepwise import MarkedArray, Trail
from ..graph import Function, Variable, leaves_of
from ..graph.leaf import arrays_of

Array = np.ndarray[Any, Any]


class Beginning(NamedTuple):
    """A value that is not finite, and was made of values that are; or a leaf."""

    kind: str
    number: int
    """That of its function, in the order of running."""
    variable: Variable
    array: Any
    given: tuple[Any, ...]
    """What its function was applied to."""
    cause: Beginning | None
    """For a NaN that was made of infinities, where the first of those begins."""
    trail: Trail
    """For a function in a body: at which step of which loop."""
    within: Beginning | None = None
    """For a loop that was run in steps: where it begins in its bodies."""


Marks = Mapping[str, Beginning]
"""Where each kind of value that an array has begins."""


class Checker:
    """Looks at functions as they run, those in bodies too, and knows where each value that is not finite begins.

    Args:
        kinds: What is looked for, by name: functions that say where an array has it.
    """

    def __init__(self, **kinds: Callable[[Array], Array]) -> None:
        self._kinds = kinds
        self._marks: dict[tuple[Any, int], Marks] = {}
        self._numbers = itertools.count()

    def bad(self, array: Any) -> dict[str, Array]:
        """Where an array has what is looked for, if it has any."""
        values = np.asarray(array)
        if values.dtype.kind in "biu" or np.isfinite(values).all():
            return {}
        found = {kind: where(values) for kind, where in self._kinds.items()}
        return {kind: mask for kind, mask in found.items() if mask.any()}

    def leaf(self, x: Variable, array: Any) -> None:
        """Look at a leaf. One that was not looked at is not where anything begins."""
        if kinds := self.bad(array):
            number = next(self._numbers)
            self._marks[id(x), 0] = {kind: Beginning(kind, number, x, array, (), None, ()) for kind in kinds}

    def ran(self, f: Function, inputs: Sequence[Any], results: Sequence[Any], within: Sequence[Any] = ()) -> None:
        """Look at a function that has run; `within` is what `marks` said of the functions in its bodies."""
        given = [MarkedArray(array, self.marks_of(x)) for array, x in zip(inputs, f.inputs, strict=True)]
        for k, marks in enumerate(self.marks(f, given, results, ())):
            if marks and within and within[k] and not any([self.bad(array) for array in inputs]):
                marks = {kind: begun._replace(within=within[k].get(kind)) for kind, begun in marks.items()}
            if marks:
                self._marks[f, k] = marks

    def marks_of(self, x: Variable) -> Marks | None:
        """Where what is not finite in a value begins; None if it is finite."""
        return self._marks.get((id(x), 0) if x.parent is None else (x.parent, x.index))

    def marks(
        self, f: Function, inputs: Sequence[MarkedArray], results: Sequence[Any], trail: Trail
    ) -> list[Marks | None]:
        """Where what is not finite in each result begins: in what the function was given, or here."""
        given = [x.mark for x in inputs]
        number = next(self._numbers)
        made: list[Marks | None] = []
        for k, result in enumerate(results):
            marks = {}
            for kind in self.bad(result):
                cause = first_of("inf", given) if kind == "nan" else None
                arrays = tuple([x.array for x in inputs])
                marks[kind] = first_of(kind, given) or Beginning(
                    kind, number, f.outputs[k], result, arrays, cause, trail
                )
            made.append(marks or None)
        return made

    def of_part(self, mark: Marks, array: Any) -> Marks | None:
        """Where what is not finite in a part of an array begins."""
        bad = self.bad(array)
        return {kind: begun for kind, begun in mark.items() if kind in bad} or None

    def first(self, kind: str) -> Beginning | None:
        """What began first of a kind, wherever it is."""
        return first_of(kind, self._marks.values())


def first_of(kind: str, marks: Iterable[Marks | None]) -> Beginning | None:
    """What began first of a kind, of several marks; of outputs of one function the last one."""
    found = [each[kind] for each in marks if each and kind in each]
    return min(reversed(found), key=lambda begun: begun.number, default=None)


def arrays_of_last_forward(outputs: Sequence[Variable]) -> dict[int, Any]:
    """The arrays of the leaves of a graph by the leaves' ids: those of the last `forward()` of its outputs, or present
    ones if there was none."""
    leaves = leaves_of(outputs)
    arrays = {id(x): array for x, array in zip(leaves, arrays_of(leaves, draw=False), strict=True)}
    for y in outputs:
        snapshot = None if y.parent is None else y.parent.snapshot
        arrays |= {} if snapshot is None else snapshot.by_leaf()
    return arrays
