"""forward(): a snapshot of the leaves, and promises of the values."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import jax

from ..graph import Function, NdArray, Variable, functions_of
from ..graph.function import watched
from ..graph.leaf import arrays_of
from .compiled import executable_of
from .interpret import Hook, interpret
from .lower import Program, linearize
from .units import any_watched


class Plan:
    """How to run the graph above some outputs: made once for a graph, since graphs do not change.

    It is kept on the function at the root and does not refer to that one, so there is no cycle.
    """

    __slots__ = ("executable", "functions", "fused", "kept", "leaf_ids", "leaves", "program", "updated")

    def __init__(self, outputs: Sequence[Variable]) -> None:
        roots = {y.parent for y in outputs}
        functions = functions_of(outputs)
        self.functions = [f for f in functions if f not in roots]
        self.kept = [
            y for f in self.functions for ref in f._outputs for y in [ref()] if y is not None and y.persistent
        ]
        linear = linearize([*outputs, *self.kept], device=device_of(outputs), functions=functions)
        self.program: Program = linear.program
        self.leaves = linear.leaves
        self.updated = linear.updated
        self.leaf_ids = tuple([id(x) for x in linear.leaves])
        self.executable = executable_of(linear.program)
        self.fused: dict[Any, Any] = {}


class Snapshot:
    """The arrays of a graph's leaves at one `forward()`, and what it promised; nothing if it was none."""

    __slots__ = ("arrays", "leaf_ids", "promise", "results")

    def __init__(self, plan: Plan, arrays: tuple[Any, ...], promise: Promise | None = None) -> None:
        self.leaf_ids = plan.leaf_ids
        self.arrays = arrays
        self.promise = promise
        self.results: MutableMapping[Function, tuple[Any, ...]] | None = None
        """The results of the functions, where they ran one by one."""

    def by_leaf(self) -> dict[int, Any]:
        """The arrays by the ids of the leaves."""
        return dict(zip(self.leaf_ids, self.arrays, strict=True))


_keeping = threading.Lock()


class Promise:
    """Results that are computed when the first of the cells that wait for them is read."""

    __slots__ = ("arrays", "cells", "executable")

    def __init__(self, executable: Callable[..., Any], arrays: tuple[Any, ...], cells: Sequence[NdArray]) -> None:
        self.executable = executable
        self.arrays = arrays
        self.cells: list[weakref.ref[NdArray]] | None = [weakref.ref(cell) for cell in cells]
        for cell in cells:
            cell.promise(self)

    @property
    def kept(self) -> bool:
        """Whether the results are there."""
        return self.cells is None

    def resolve(self) -> None:
        """Compute the results."""
        self.keep(() if self.kept else self.executable(*self.arrays))

    def keep(self, results: Sequence[Any]) -> None:
        """Hand the results, computed here or elsewhere, to the cells that still wait for them."""
        with _keeping:  # whoever comes while another thread hands them over waits until it has
            cells, self.cells = self.cells, None
            for ref, result in zip(cells or (), results, strict=False):
                cell = ref()
                if cell is not None and cell._pending is self:
                    cell.put(result)

    def keep_if_complete(self, cells: Sequence[NdArray], results: Sequence[Any]) -> None:
        """Hand over what was computed for `cells`, if that is all that was promised."""
        known = dict(zip(map(id, cells), results, strict=True))
        waiting = [ref() for ref in self.cells or ()]
        if all([cell is None or id(cell) in known for cell in waiting]):
            self.keep([known.get(id(cell)) for cell in waiting])


def plan_of(outputs: Sequence[Variable]) -> Plan:
    """The plan for `outputs`; that of a single function's single output is kept on the function."""
    f = outputs[0].parent
    if len(outputs) != 1 or f is None or len(f.specs) != 1:
        return Plan(outputs)
    plan: Plan | None = f.plan
    if plan is None:
        plan = f.plan = Plan(outputs)
    return plan


def take_snapshot(outputs: Sequence[Variable]) -> Snapshot:
    """Freeze the leaves' values for `outputs`, and promise the values of the outputs, of persistent Variables
    and of the leaves that are updated."""
    plan = plan_of(outputs)
    arrays = tuple(arrays_of(plan.leaves))
    promised = [x.cell for x in (*outputs, *plan.kept, *plan.updated)]
    snapshot = Snapshot(plan, arrays, Promise(plan.executable, arrays, promised))
    for f in plan.functions:
        f.snapshot = snapshot
    for y in outputs:
        if y.parent is not None:
            y.parent.snapshot = snapshot
    for y in (*outputs, *plan.kept):
        y._at = snapshot
    return snapshot


def present(outputs: Sequence[Variable]) -> Snapshot:
    """The leaves' present values, for what is no `forward()`: keys that were drawn are not drawn again, and
    nothing is promised."""
    plan = plan_of(outputs)
    return Snapshot(plan, tuple(arrays_of(plan.leaves, draw=False)))


def forward(outputs: list[Variable], function_pre_hook: Hook = None, function_post_hook: Hook = None) -> None:
    """Compute `outputs` from the leaves' present values; see `Variable.forward`."""
    computed = [y for y in outputs if y.parent is not None]
    if not computed:
        return
    snapshot = take_snapshot(computed)
    if function_pre_hook is not None or function_post_hook is not None or is_watched(computed):
        run_one_by_one(computed, snapshot, snapshot.by_leaf(), function_pre_hook, function_post_hook)


def is_watched(outputs: Sequence[Variable]) -> bool:
    """Whether hooks or debug mode want to see the functions above `outputs` run."""
    return watched() and any_watched(functions_of(outputs))


def run_one_by_one(
    outputs: Sequence[Variable],
    snapshot: Snapshot,
    leaves: dict[int, Any],
    before: Hook = None,
    after: Hook = None,
    hooked: Callable[[Function], bool] = lambda f: True,
) -> list[Any]:
    """Compute `outputs`; what `snapshot` covers is kept with it, so that it runs once for each forward."""
    known = snapshot.results
    if known is None:
        known = snapshot.results = weakref.WeakKeyDictionary()

    def keep(f: Function, results: tuple[Any, ...]) -> None:
        if f.snapshot is snapshot:
            known[f] = results
            for y, result in zip(f.outputs, results, strict=True):
                y.cell.put(result)
                y._at = snapshot

    return interpret(outputs, leaves, before, after, hooked, keep, known)


def evaluate(variable: Variable) -> None:
    """Compute a Variable that no `forward()` has promised: from the snapshot of the forward that covered
    its function, or from the leaves' present values."""
    assert variable.parent is not None
    snapshot: Snapshot | None = variable.parent.snapshot
    plan = plan_of([variable])
    arrays = (present([variable]) if snapshot is None else snapshot).by_leaf()
    if is_watched([variable]):
        results: Sequence[Any] = interpret([variable], arrays, known=None if snapshot is None else snapshot.results)
    else:
        results = plan.executable(*[arrays[i] for i in plan.leaf_ids])
    variable.cell.put(results[0])
    variable._at = snapshot


def device_of(outputs: Sequence[Variable]) -> jax.Device | None:
    """The device of the Context that the outputs' functions were made in."""
    for y in outputs:
        if y.parent is not None and y.parent.context is not None:
            device: jax.Device | None = y.parent.context.device
            return device
    return None
