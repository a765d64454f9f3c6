"""Plans: how to run the graph above some Variables, and on which arrays. It runs as one executable, or, to read many
values of a deep graph, section by section, from one thin cut to the next. The last section may be what takes a result
apart.

The cuts are determined by the graph above a value alone; values at cuts are cached, which changes no bits.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np

from ..graph import Function, NdArray, Variable, build_options, functions_of
from ..graph.body_op import ControlOp
from ..graph.function import watched
from ..graph.leaf import arrays_of
from ..graph.process import check_process, groups_of, several_processes
from ..graph.thresholds import DEEP, MOST_BYTES_PASSING, MOST_PASSING, SMALL_RESULT, STRIDE
from ..graph.value import Deferred, OutputGroup, hold_together
from .compiled import executable_of
from .interpret import any_watched
from .lower import Program, linearize


class Lookup:
    """The executable of a program, looked up only when it first runs, since a backward may make that unnecessary."""

    __slots__ = ("_executable", "_program")

    def __init__(self, program: Program) -> None:
        self._program = program
        self._executable: Callable[..., tuple[Any, ...]] | None = None

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """The results for arrays of the leaves."""
        executable = self._executable
        if executable is None:
            executable = self._executable = executable_of(self._program)
        return executable(*arrays)


class RunPlan:
    """How to run the graph above some outputs. It is made once per graph, since graphs do not change.

    It is kept on the function at the root and does not refer to that function, so there is no cycle.
    """

    __slots__ = (
        "exchanged", "executable", "functions", "fused", "group", "kept", "leaf_ids", "leaves", "members", "program",
        "updated",
    )  # fmt: skip

    def __init__(self, outputs: Sequence[Variable]) -> None:
        roots, functions = {y.parent for y in outputs}, functions_of(outputs)
        self.functions = [f for f in functions if f not in roots]
        living = [(f, y) for f in functions for ref in f._outputs if (y := ref()) is not None]
        self.members: dict[OutputGroup, list[int]] = {}
        """The serial numbers of the functions that compute members of each output group."""
        for made_by, y in living:
            if y._group is not None:
                self.members.setdefault(y._group, []).append(made_by.serial)
        kept = [y for f, y in living if y.persistent and f not in roots]
        for f in roots:
            if f is not None and f.op.reads == 0:  # it only serves to compute its inputs
                kept += [x for x in f.inputs if x.parent is not None]
        # No process can recompute such a result alone, so each keeps it for readers of Variables that depend on it.
        given = set(map(id, outputs))
        self.exchanged = [y for f in exchanging(functions) for y in f.outputs if id(y) not in given]
        kept += self.exchanged
        self.kept = list({id(y): y for y in kept}.values())
        linear = linearize([*outputs, *self.kept], device=device_of(outputs), functions=functions)
        self.program: Program = linear.program
        self.group = linear.program.group
        self.leaves = linear.leaves
        self.updated = linear.updated
        self.leaf_ids = tuple([id(x) for x in linear.leaves])
        self.executable = Lookup(linear.program)
        self.fused: dict[Any, Any] = {}


def exchanging(functions: Sequence[Function]) -> list[Function]:
    """The functions that exchange arrays with other processes."""
    return [f for f in functions if groups_of(f.op, f.arguments)] if several_processes() else []


class Snapshot:
    """The arrays of a graph's leaves at one `forward()`, and the deferred run."""

    __slots__ = ("arrays", "exchanged", "implied", "leaf_ids", "leaves", "mark", "outputs", "results", "run")

    def __init__(
        self, outputs: Sequence[Variable], plan: RunPlan, arrays: tuple[Any, ...], run: DeferredRun | None = None
    ) -> None:
        self.outputs = numbers_of(outputs)
        self.leaf_ids = plan.leaf_ids
        self.leaves = plan.leaves
        self.arrays = arrays
        self.mark = object()
        """Identifies the snapshot without keeping it alive."""
        self.run = run
        """The deferred run; None if there was no forward."""
        self.implied = False
        """Whether a `backward()` without a preceding `forward()` has run it."""
        self.exchanged: dict[tuple[int, int], Any] = {}
        """The values that the forward has exchanged with other processes, by `numbers_of` the Variables."""
        self.results: MutableMapping[Function, tuple[Any, ...]] | None = None
        """The results of the functions, if they ran one by one."""

    def by_leaf(self) -> dict[int, Any]:
        """The arrays, by the ids of the leaves."""
        return dict(zip(self.leaf_ids, self.arrays, strict=True))


def numbers_of(outputs: Iterable[Variable]) -> tuple[tuple[int, int], ...]:
    """Identifiers of functions' outputs that do not hold them."""
    return tuple([(-1 if y.parent is None else y.parent.serial, y.index) for y in outputs])


class DeferredRun:
    """A run of an executable, deferred until the first of its results is read. A `backward()` computes them as well,
    and replaces those read before."""

    __slots__ = ("_arrays", "_cells", "_executable", "_values", "done")

    def __init__(self, executable: Callable[..., Any], arrays: tuple[Any, ...], cells: Sequence[NdArray]) -> None:
        self._executable = executable
        self._arrays = arrays
        values = [Deferred(self, replaceable=True) for _ in cells]
        self._cells = list(map(id, cells))
        self._values = list(map(weakref.ref, values))
        self.done = False
        """Whether the results are computed."""
        hold_together(cells, values)

    def run(self) -> None:
        """Compute the results."""
        if not self.done:
            check_process()
            for ref, result in zip(self._values, self._executable(*self._arrays), strict=False):
                value = ref()
                if value is not None:
                    value.fill(result)
            self.done = True  # last, so that values left waiting by an interrupt are recomputed

    def replace(self, results: Sequence[Any]) -> None:
        """Store results that were computed elsewhere, replacing any present ones."""
        for ref, result in zip(self._values, results, strict=False):
            value = ref()
            if value is not None:
                value.replace(result)
        self.done = True

    def replace_in(self, cells: Sequence[NdArray], results: Sequence[Any]) -> None:
        """As `replace`, for results that belong to these cells, if all cells of the run are among them."""
        known = dict(zip(map(id, cells), results, strict=True))
        if known.keys() >= set(self._cells):
            self.replace([known[cell] for cell in self._cells])


def plan_of(outputs: Sequence[Variable]) -> RunPlan:
    """The plan to compute `outputs`; a single function's single output has its plan kept on the function."""
    f = outputs[0].parent
    if len(outputs) != 1 or f is None or len(f.specs) != 1:
        return RunPlan(outputs)
    plan: RunPlan | None = f.plan
    running = build_options().running
    if plan is None or plan.program.mesh != running.mesh or plan.program.without != running.without_passes:
        plan = f.plan = RunPlan(outputs)
    return plan


def present(outputs: Sequence[Variable]) -> Snapshot:
    """The leaves' current values, without a `forward()`: keys already drawn are not drawn again, and nothing is
    deferred."""
    plan = plan_of(outputs)
    return Snapshot(outputs, plan, tuple(arrays_of(plan.leaves, draw=False, mesh=plan.program.mesh)))


def is_watched(outputs: Sequence[Variable]) -> bool:
    """Whether hooks or debug mode watch the functions above `outputs` run."""
    return watched() and any_watched(functions_of(outputs))


def device_of(outputs: Sequence[Variable]) -> jax.Device | None:
    """The device of the Context that the outputs' functions were made in."""
    for y in outputs:
        if y.parent is not None and y.parent.context is not None:
            device: jax.Device | None = y.parent.context.device
            return device
    return None


def reference_to(array: Any) -> Callable[[], Any]:
    """A weak reference to an array; small NumPy arrays, which are soon replaced, are held strongly."""
    if isinstance(array, np.ndarray) and array.nbytes <= SMALL_RESULT:
        return lambda: array
    return weakref.ref(array)


class Section:
    """The functions between two cuts, as an executable from the values at the first cut, and leaves, to those at the
    second."""

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
        """The ids of its leaves."""
        self.leaves = list({id(x): x for x in (*before, *linear.leaves[len(given) :])}.values())
        """All leaves that its results depend on."""


class Sections(NamedTuple):
    """The sections that compute a value, lowest first. It does not refer to anything that depends on the value."""

    parts: list[Section]
    last: Section | int
    """The last section, or which result of the one before it is the value."""
    settings: tuple[Any, ...]

    @property
    def leaves(self) -> list[Variable]:
        """The leaves that the value depends on."""
        return (self.parts[-1] if isinstance(self.last, int) else self.last).leaves

    def run(self, arrays: Sequence[Any]) -> Any:
        """Compute the value for these arrays of the leaves."""
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
        if isinstance(self.last, int):
            return given[self.last]
        return self.last.executable(*given, *[by_leaf[i] for i in self.last.own])[0]


_sections: weakref.WeakKeyDictionary[Function, dict[int, Sections | None]] = weakref.WeakKeyDictionary()
"""The sections of functions' outputs, by index; None for an output computed by one executable."""


def sections_of(variable: Variable, device: jax.Device | None) -> Sections | None:
    """The sections of a Variable; None if the graph above it is not cut."""
    f = variable.parent
    assert f is not None
    settings = device, build_options().running.mesh, build_options().running.without_passes
    known = _sections.setdefault(f, {})
    found = known.get(variable.index)
    if variable.index not in known or (found is not None and found.settings != settings):
        found = known[variable.index] = _cut(variable, device, settings)
    return found


def forget_cuts(functions: Sequence[Function]) -> None:
    """Forget the sections of functions' outputs, and the cached values at their cuts."""
    for f in functions:
        _sections.pop(f, None)
        _passed.pop(f, None)


def _cut(variable: Variable, device: jax.Device | None, settings: tuple[Any, ...]) -> Sections | None:
    assert variable.parent is not None
    source = _source_of(variable)
    whole = source or [variable]
    root = whole[0].parent
    assert root is not None
    cuts = cuts_of(functions_of(whole)) if root.rank >= DEEP else []
    if not cuts and not source:
        return None
    parts: list[Section] = []
    given: list[Variable] = []
    leaves: list[Variable] = []

    def add(outputs: list[Variable], low: int, high: int) -> None:
        nonlocal given, leaves
        functions = [f for f in functions_of(outputs) if low <= f.rank < high]
        parts.append(Section(outputs, given, functions, device, leaves))
        given, leaves = outputs, parts[-1].leaves

    ranks = [0, *[rank for rank, _ in cuts], root.rank + 1]
    for (low, high), outputs in zip(pairwise(ranks), [*[passing for _, passing in cuts], whole], strict=True):
        add(outputs, low, high)
    if source and variable.parent is root:
        return Sections(parts, variable.index, settings)
    if source:
        add([variable], root.rank + 1, variable.parent.rank + 1)
    return Sections(parts[:-1], parts[-1], settings)


def _source_of(variable: Variable) -> list[Variable]:
    """The results of a function, if `variable` is one of several or a part of one that takes much to compute, so that
    whoever reads all of them or all parts computes them once. Empty if there are none, or they are too large to keep.
    """
    x, is_part = variable, False
    while (f := x.parent) is not None and len(f.inputs) == 1:
        is_part |= f.op.slice_keys is not None
        if f.op.slice_keys is None and not f.op.view:
            break
        x = f.inputs[0]
    if f is None:
        return []
    own = f.op.results_for_users(f.arguments) if isinstance(f.op, ControlOp) else None
    specs = f.specs[:own]
    is_wanted = x.index < len(specs) and (len(specs) > 1 or (is_part and any([g.heavy for g in functions_of([x])])))
    return list(f.outputs[:own]) if is_wanted and sum([s.nbytes for s in specs]) <= MOST_BYTES_PASSING else []


def cuts_of(functions: Sequence[Function]) -> list[tuple[int, list[Variable]]]:
    """The cuts of a graph, given as functions by ascending rank, its root last: the rank at which each section but the
    first begins, and the Variables that pass there.

    Starting at the last possible boundary, the next is always the last earlier one whose number ends in more binary
    zeros. So the values at a boundary are computed in the same way whatever is read, and there are few sections.
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


# ---------------------------------------------------------------- cached values at cuts


class _Passed(NamedTuple):
    """The cached values at a cut."""

    numbers: tuple[tuple[int, int], ...]
    """`numbers_of` the Variables."""
    settings: tuple[Any, ...]
    versions: list[Callable[[], Any]]
    """References to the arrays of the leaves that they were computed from."""
    arrays: Sequence[Any]


_passed: weakref.WeakKeyDictionary[Function, _Passed] = weakref.WeakKeyDictionary()
"""The latest values at each cut, by the function that computes the first of them."""


def _remembered(part: Section, by_leaf: dict[int, Any], settings: tuple[Any, ...]) -> Sequence[Any] | None:
    """The cached results of a section for these arrays of the leaves, or None."""
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
