"""Plans: how to run the graph above some Variables, and on which arrays."""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import numpy as np

from ..graph import Function, NdArray, Variable, build_options, functions_of
from ..graph.body_op import ControlOp
from ..graph.placement import groups_of, several_processes
from ..graph.process import at_once, check_process
from ..graph.spec import Spec
from ..graph.thresholds import MOST_BYTES_KEPT, SMALL_RESULT
from ..graph.value import OutputGroup, Thunk, Value
from .compiled import executables, taken_apart
from .executable import Executable
from .lower import Program, linearize
from .program import arrays_of, keys_among


def looked_up(program: Program) -> Callable[..., tuple[Any, ...]]:
    """The executable of a program, looked up only when it first runs, since a backward may make that unnecessary."""
    found = functools.cache(lambda: executables.of(program))
    return lambda *arrays: found()(*arrays)


_index_of = attrgetter("index")


class RunPlan:
    """How to run the graph above some outputs. It is made once per graph, since graphs do not change.

    It is kept on the function at the root and does not refer to that function, so there is no cycle.
    """

    __slots__ = (
        "exchanged", "executable", "floating", "functions", "fused", "group", "kept", "keys", "leaf_ids", "leaves",
        "members", "numbers", "program", "results", "updated",
    )  # fmt: skip

    def __init__(self, outputs: Sequence[Variable]) -> None:
        self.results = tuple(map(_index_of, outputs))
        """The indices of the outputs, if they are results of one function."""
        roots, functions = {y.parent for y in outputs}, functions_of(outputs)
        self.members: dict[OutputGroup, list[int]] = {}
        """The serial numbers of the functions that compute members of each output group."""
        persistent = []
        for made_by in functions:
            for ref in made_by._outputs:
                y = ref()
                if y is not None and (y._group is not None or y._persistent):  # few are either
                    if y._group is not None:
                        self.members.setdefault(y._group, []).append(made_by.serial)
                    if y._persistent and made_by not in roots:
                        persistent.append(y)
        for f in roots:
            if f is not None and f.op.reads == 0:  # it only serves to compute its inputs
                persistent += [x for x in f.inputs if x.parent is not None]
        # No process can recompute such a result alone, so each keeps it for readers of Variables that depend on it.
        output_ids = set(map(id, outputs))
        self.exchanged = [y for f in exchanging(functions) for y in f.outputs if id(y) not in output_ids]
        persistent += self.exchanged
        self.kept = list({id(y): y for y in persistent}.values())
        linear = linearize([*outputs, *self.kept], device=device_of(outputs), functions=functions)
        self.functions = [f for f in linear.functions if f not in roots]
        self.program: Program = linear.program
        self.group = linear.program.group
        self.leaves = linear.leaves
        self.updated = linear.updated
        self.floating = [(i, x) for i, x in enumerate(linear.leaves) if x.spec.differentiable]
        """The leaves that may need a gradient, by index."""
        self.keys = keys_among(linear.leaves)
        self.leaf_ids = tuple([id(x) for x in linear.leaves])
        self.executable = looked_up(linear.program)
        self.fused: dict[Any, Any] = {}
        self.numbers = numbers_of(outputs)


def exchanging(functions: Sequence[Function]) -> list[Function]:
    """The functions that exchange arrays with other processes."""
    return [f for f in functions if groups_of(f.op, f.arguments)] if several_processes() else []


class Snapshot:
    """One `forward()`: the arrays of the leaves, and the values of its outputs, of persistent Variables and of the
    leaves that it updates. They are computed when the first of them is read; a `backward()` computes them as well, and
    replaces those read before. If none was read, its gradients may wait with them (`add_gradients`).

    It does not refer to the leaves, since the cell of one that it updates refers to it.
    """

    __slots__ = (
        "_cells", "_thunks", "arrays", "done", "exchanged", "executable", "has_gradients", "implied", "is_forward",
        "leaf_ids", "mark", "outputs", "results",
    )  # fmt: skip

    def __init__(self, plan: RunPlan, arrays: tuple[Any, ...], cells: Sequence[NdArray] = ()) -> None:
        self.outputs = plan.numbers
        self.leaf_ids = plan.leaf_ids
        self.arrays = arrays
        self.mark = object()
        """Identifies it without keeping it alive."""
        self.implied = False
        """Whether a `backward()` without a preceding `forward()` took it."""
        self.exchanged: dict[tuple[int, int], Any] = {}
        """The values that it has exchanged with other processes, by `numbers_of` the Variables."""
        self.results: MutableMapping[Function, tuple[Any, ...]] | None = None
        """The results of the functions, if they ran one by one."""
        self.executable = plan.executable
        """What computes the values from the arrays."""
        self.has_gradients = False
        """Whether gradients are computed with the values."""
        self._cells = list(map(id, cells))
        thunks = list(map(Thunk, repeat(self.compute), range(len(cells))))
        self._thunks = list(map(weakref.ref, thunks))
        self.is_forward = bool(cells)
        """Whether it computes values; otherwise they were computed as the graph was built."""
        self.done = not cells
        """Whether its values are computed."""
        Value.put_in(cells, thunks)

    def by_leaf(self) -> dict[int, Any]:
        """The arrays, by the ids of the leaves."""
        return dict(zip(self.leaf_ids, self.arrays, strict=True))

    @at_once
    def compute(self, thunk: Thunk | None = None) -> None:
        """Compute the values, for all cells; gradients too, if `thunk` is one of them that an update left waiting."""
        if not self.done or (thunk is not None and thunk.array is None):
            check_process()
            self.finish(self.executable(*self.arrays))

    def finish(self, results: Sequence[Any]) -> None:
        """Store the computed values where none are present yet; in place of a gradient, None leaves it waiting."""
        Thunk.fill_together(self._thunks, results)
        self.done = True  # last, so that values left waiting by an interrupt are recomputed

    def add_gradients(self, executable: Callable[..., tuple[Any, ...]], cells: Sequence[NdArray]) -> None:
        """From now on, `executable` computes the values, followed by gradients that belong in these cells."""
        self.executable = executable
        self.has_gradients = True
        thunks = list(map(Thunk, repeat(self.compute), range(len(self._thunks), len(self._thunks) + len(cells))))
        self._thunks += map(weakref.ref, thunks)
        Value.put_in(cells, thunks)

    def replace(self, results: Sequence[Any]) -> None:
        """Store values that were computed elsewhere, replacing any present ones."""
        if self.has_gradients:
            self.compute()
        for ref, result in zip(self._thunks, results, strict=False):
            value = ref()
            if value is not None:
                value.replace(result)
        self.done = True

    def replace_in(self, cells: Sequence[NdArray], results: Sequence[Any]) -> None:
        """Store values that belong to these cells, replacing any present ones, if all of its own are among them."""
        known = dict(zip(map(id, cells), results, strict=True))
        if known.keys() >= set(self._cells):
            self.replace([known[cell] for cell in self._cells])


class Awaited(NamedTuple):
    """Gradients that are not computed yet."""

    executable: Executable
    """What computes them, with other values."""
    arrays: tuple[Any, ...]
    """Its arguments."""
    places: tuple[int | None, ...]
    """Where each gradient is among the results; None for zero."""
    finish: Callable[[Sequence[Any]], None]
    """Takes the results, if something else has computed them."""


def awaited(gradients: Sequence[Any]) -> Awaited | None:
    """What Values of gradients wait for, if that is one executable for all that are not zero."""
    sources = [v.source for v in gradients if v.source.__class__ is not Spec]
    alike = len(sources) and sources.count(sources[0]) == len(sources)
    snapshot = getattr(sources[0], "__self__", None) if alike else None
    if not isinstance(snapshot, Snapshot) or snapshot.done or not snapshot.has_gradients:
        return None
    executable, numbers = taken_apart(snapshot.executable)
    places = tuple([v.index for v in gradients])
    return Awaited(executable, (*numbers, *snapshot.arrays), places, snapshot.finish)


def numbers_of(outputs: Iterable[Variable]) -> tuple[tuple[int, int], ...]:
    """Identifiers of functions' outputs that do not hold them."""
    return tuple([(-1 if y.parent is None else y.parent.serial, y.index) for y in outputs])


def plan_of(outputs: Sequence[Variable]) -> RunPlan:
    """The plan to compute `outputs`; that of the results of a single function is kept on it."""
    f = outputs[0].parent
    if f is None or (len(outputs) > 1 and any([y.parent is not f for y in outputs])):
        return RunPlan(outputs)
    plan: RunPlan | None = f.plan
    if plan is None or plan.results != tuple(map(_index_of, outputs)) or not is_current(plan.program):
        plan = RunPlan(outputs)
        f.plan = None if any([y.parent is f for y in plan.kept]) else plan  # it may not refer to the function
    return plan


def is_current(program: Program) -> bool:
    """True if a program was made under the present settings."""
    running = build_options().running
    return bool(program.mesh == running.mesh) and program.without == running.without_passes


def present(outputs: Sequence[Variable]) -> Snapshot:
    """The leaves' current values, without a `forward()`: keys already drawn are not drawn again, and nothing is
    deferred."""
    plan = plan_of(outputs)
    arrays = arrays_of(plan.leaves, draw=False, mesh=plan.program.mesh, keys=plan.keys)
    return Snapshot(plan, tuple(arrays))


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


# ---------------------------------------------------------------- results of functions of which others are parts


def source_of(variable: Variable) -> list[Variable]:
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
    count = f.op.results_for_users(f.arguments) if isinstance(f.op, ControlOp) else None
    specs = f.specs[:count]
    is_wanted = x.index < len(specs) and (len(specs) > 1 or (is_part and any([g.heavy for g in functions_of([x])])))
    return list(f.outputs[:count]) if is_wanted and sum([s.nbytes for s in specs]) <= MOST_BYTES_KEPT else []


_sources: weakref.WeakKeyDictionary[Function, tuple[RunPlan, Sequence[Any], Sequence[Any]]]
_sources = weakref.WeakKeyDictionary()
"""The latest results of functions that were read for one of them, or for a part: by which plan, and from which arrays,
of which no large one is kept alive.
"""


def source_results(source: list[Variable], plan: RunPlan, arrays: Sequence[Any]) -> Sequence[Any]:
    """The results of a function for these arrays of the leaves of its plan, kept for those who read another one."""
    f = source[0].parent
    assert f is not None
    known_plan, references, results = _sources.get(f, (None, (), ()))
    if known_plan is not plan or not all(map(operator.is_, [refer() for refer in references], arrays)):
        results = plan.executable(*arrays)[: len(source)]
        _sources[f] = plan, list(map(reference_to, arrays)), results
    return results


def forget_sources(functions: Sequence[Function]) -> None:
    """Forget the results that were kept for readers of others or of parts."""
    for f in functions:
        _sources.pop(f, None)
