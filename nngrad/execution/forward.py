"""forward(): a snapshot of the leaves, and values that are computed from it when they are read."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ..graph import Function, Variable
from ..graph.leaf import arrays_of
from .interpret import Hook, interpret
from .plans import DeferredRun, RunPlan, Snapshot, is_watched, numbers_of, plan_of
from .reading import IntermediateValue


def take_snapshot(outputs: Sequence[Variable], plan: RunPlan | None = None) -> Snapshot:
    """Freeze the leaves' values for `outputs`, and defer the values of the outputs, of persistent Variables
    and of the leaves that are updated."""
    plan = plan_of(outputs) if plan is None else plan
    arrays = tuple(arrays_of(plan.leaves, mesh=plan.program.mesh))
    cells = [x.cell for x in (*outputs, *plan.kept, *plan.updated)]
    snapshot = Snapshot(outputs, plan, arrays, DeferredRun(plan.executable, arrays, cells))
    for y in (*outputs, *plan.kept):
        y._at = snapshot
    for group, serials in plan.members.items():
        group.cover(serials, snapshot.mark)
    for f in (*plan.functions, *{y.parent for y in outputs if y.parent is not None}):
        f.snapshot = snapshot
        for ref in f._outputs:
            x = ref()
            if x is not None and x._data is not None and x._at is not snapshot:
                x._at = snapshot  # somebody else may have its cell, and will find what this forward gives it
                x._data.defer(IntermediateValue(x, snapshot).value)
    return snapshot


def forward(outputs: list[Variable], function_pre_hook: Hook = None, function_post_hook: Hook = None) -> None:
    """Compute `outputs` from the leaves' present values; see `Variable.forward`."""
    computed = [y for y in outputs if y.parent is not None]
    if not computed:
        return
    plan = plan_of(computed)
    snapshot = take_snapshot(computed, plan)
    if plan.group is not None and snapshot.run is not None:
        snapshot.run.run()  # now: some process may never read it, and others would wait for that one
        keep_exchanged(computed, plan, snapshot)
    if function_pre_hook is not None or function_post_hook is not None or is_watched(computed):
        run_one_by_one(computed, snapshot, snapshot.by_leaf(), function_pre_hook, function_post_hook)


def keep_exchanged(outputs: Sequence[Variable], plan: RunPlan, snapshot: Snapshot) -> None:
    """Let what is read of a forward that has run be computed without the other processes."""
    together = [*outputs, *plan.exchanged]
    snapshot.exchanged = {number: y.cell.raw() for number, y in zip(numbers_of(together), together, strict=True)}


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
