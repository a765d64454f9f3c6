"""Deep graphs computed a section at a time, from one thin cut to the next, so that many values in them can be read.

Where the cuts are follows from the graph above a value alone; what passes them is remembered, which changes no bits.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np

from ..graph import Function, Variable, build_options, functions_of
from ..graph.thresholds import DEEP, MOST_BYTES_PASSING, MOST_PASSING, SMALL_RESULT, STRIDE
from .compiled import executable_of
from .lower import linearize
from .plans import numbers_of


def reference_to(array: Any) -> Callable[[], Any]:
    """What gives an array as long as it is alive; a small one of NumPy, which is quickly replaced, is kept."""
    if isinstance(array, np.ndarray) and array.nbytes <= SMALL_RESULT:
        return lambda: array
    return weakref.ref(array)


class Section:
    """The functions between two cuts, as an executable: what passes the first, and leaves, in; what passes the second
    out."""

    __slots__ = ("executable", "leaves", "nbytes", "numbers", "own", "root")

    def __init__(
        self, outputs: list[Variable], given: list[Variable], functions: list[Function], device: jax.Device | None,
        before: list[Variable],
    ) -> None:
        linear = linearize(outputs, first=given, device=device, effects=False, functions=functions)
        self.executable = executable_of(linear.program)
        self.numbers = numbers_of(outputs)
        self.nbytes = sum([x.spec.nbytes for x in outputs])
        self.root = weakref.ref(outputs[0].parent)
        self.own = [id(x) for x in linear.leaves[len(given) :]]
        """The ids of the leaves that it takes."""
        self.leaves = list({id(x): x for x in (*before, *linear.leaves[len(given) :])}.values())
        """All leaves that what it gives depends on."""


class Sections(NamedTuple):
    """How a value is computed a section at a time, the lowest first. It refers to nothing that depends on the value."""

    parts: list[Section]
    last: Section
    settings: tuple[Any, ...]

    @property
    def leaves(self) -> list[Variable]:
        """The leaves that the value depends on."""
        return self.last.leaves

    def run(self, arrays: Sequence[Any]) -> Any:
        """The value for these arrays of the leaves."""
        by_leaf = dict(zip(map(id, self.leaves), arrays, strict=True))
        given: Sequence[Any] = ()
        start = len(self.parts)
        while start:
            found = _remembered(self.parts[start - 1], by_leaf, self.settings)
            if found is not None:
                given = found
                break
            start -= 1
        for part in self.parts[start:]:
            given = part.executable(*given, *[by_leaf[i] for i in part.own])
            _remember(part, by_leaf, self.settings, given)
        return self.last.executable(*given, *[by_leaf[i] for i in self.last.own])[0]


_sections: weakref.WeakKeyDictionary[Function, dict[int, Sections | None]] = weakref.WeakKeyDictionary()
"""How outputs of functions are computed, by their indices; None where in one executable."""


def sections_of(variable: Variable, device: jax.Device | None) -> Sections | None:
    """How a Variable is computed a section at a time; None where the graph above it is not cut."""
    f = variable.parent
    assert f is not None
    if f.rank < DEEP:
        return None
    settings = device, build_options().running.mesh, build_options().running.without_passes
    known = _sections.setdefault(f, {})
    found = known.get(variable.index)
    if variable.index not in known or (found is not None and found.settings != settings):
        found = known[variable.index] = _cut(variable, device, settings)
    return found


def forget_cuts(functions: Sequence[Function]) -> None:
    """Forget how the outputs of functions were computed, and what passed the cuts there."""
    for f in functions:
        _sections.pop(f, None)
        _passed.pop(f, None)


def _cut(variable: Variable, device: jax.Device | None, settings: tuple[Any, ...]) -> Sections | None:
    assert variable.parent is not None
    cuts = cuts_of(functions_of([variable]))
    if not cuts:
        return None
    parts: list[Section] = []
    ranks = [0, *[rank for rank, _ in cuts], variable.parent.rank + 1]
    given: list[Variable] = []
    leaves: list[Variable] = []
    for (low, high), outputs in zip(pairwise(ranks), [*[passing for _, passing in cuts], [variable]], strict=True):
        functions = [f for f in functions_of(outputs) if low <= f.rank < high]
        section = Section(outputs, given, functions, device, leaves)
        parts.append(section)
        given, leaves = outputs, section.leaves
    return Sections(parts[:-1], parts[-1], settings)


def cuts_of(functions: Sequence[Function]) -> list[tuple[int, list[Variable]]]:
    """Where the graph of functions, lowest rank first and the last one its root, is cut: the rank at which each section
    but the first begins, and what passes there.

    From the last boundary that may be cut it goes to the last one before whose number ends in more zeros, in binary,
    and so on. So the values at a boundary are computed in the same way whatever is read, and there are few sections.
    """
    passing: dict[int, tuple[Variable, int, int]] = {}
    for f in functions:
        stride = f.rank // STRIDE
        for x in f.inputs:
            if x.parent is not None and x.parent.rank // STRIDE != stride:
                passing[id(x)] = x, x.parent.rank // STRIDE, stride  # ranks rise, so the last reader remains
    widths = [0] * (functions[-1].rank // STRIDE + 2)
    for _, begins, ends in passing.values():
        widths[begins + 1] += 1
        widths[ends + 1] -= 1
    found: list[tuple[int, list[Variable]]] = []
    width, may_be = 0, []
    for i, more in enumerate(widths[:-1]):
        width += more
        if i and width <= MOST_PASSING:
            may_be.append(i)
    zeros = 0
    for i in reversed(may_be):
        if i & -i > zeros:
            zeros = i & -i
            there = [x for x, begins, ends in passing.values() if begins < i <= ends]
            found.append((i * STRIDE, sorted(there, key=lambda x: (x.rank, x.parent.serial, x.index))))  # type: ignore[union-attr]
    return found[::-1]


# ---------------------------------------------------------------- what passes cuts


class _Passed(NamedTuple):
    """What passed a cut."""

    numbers: tuple[tuple[int, int], ...]
    """`numbers_of` the Variables."""
    settings: tuple[Any, ...]
    versions: list[Callable[[], Any]]
    """The arrays of the leaves that it was computed from."""
    arrays: Sequence[Any]


_passed: weakref.WeakKeyDictionary[Function, _Passed] = weakref.WeakKeyDictionary()
"""By the function that computes the first of the Variables: what passed last."""


def _remembered(part: Section, by_leaf: dict[int, Any], settings: tuple[Any, ...]) -> Sequence[Any] | None:
    """What a section has given for these arrays of the leaves, if that is known."""
    root = part.root()
    found = None if root is None else _passed.get(root)
    if found is None or found.settings != settings or found.numbers != part.numbers:
        return None
    same = all([version() is by_leaf[id(x)] for version, x in zip(found.versions, part.leaves, strict=True)])
    return found.arrays if same else None


def _remember(part: Section, by_leaf: dict[int, Any], settings: tuple[Any, ...], arrays: Sequence[Any]) -> None:
    root = part.root()
    if part.nbytes <= MOST_BYTES_PASSING and root is not None:
        versions = [reference_to(by_leaf[id(x)]) for x in part.leaves]
        _passed[root] = _Passed(part.numbers, settings, versions, arrays)
