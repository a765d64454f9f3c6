"""forward(): a snapshot of the leaves, and values that are computed from it when they are read."""

from __future__ import annotations

import weakref
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, NamedTuple

import jax

from ..graph import Function, NdArray, Variable, functions_of
from ..graph.function import watched
from ..graph.leaf import arrays_of
from ..graph.process import check_process
from ..graph.value import Deferred, hold_together, put_together, values_of
from .compiled import executable_of
from .interpret import Hook, interpret
from .lower import Program, linearize
from .units import any_watched


class RunPlan:
    """How to run the graph above some outputs: made once for a graph, since graphs do not change.

    It is kept on the function at the root and does not refer to that one, so there is no cycle.
    """

    __slots__ = ("executable", "functions", "fused", "kept", "leaf_ids", "leaves", "program", "updated")

    def __init__(self, outputs: Sequence[Variable]) -> None:
        roots = {y.parent for y in outputs}
        functions = functions_of(outputs)
        self.functions = [f for f in functions if f not in roots]
        kept = [y for f in self.functions for ref in f._outputs for y in [ref()] if y is not None and y.persistent]
        for f in roots:
            if f is not None and f.op.reads == 0:  # it is there to have its inputs computed
                kept += [x for x in f.inputs if x.parent is not None]
        self.kept = list({id(y): y for y in kept}.values())
        linear = linearize([*outputs, *self.kept], device=device_of(outputs), functions=functions)
        self.program: Program = linear.program
        self.leaves = linear.leaves
        self.updated = linear.updated
        self.leaf_ids = tuple([id(x) for x in linear.leaves])
        self.executable = executable_of(linear.program)
        self.fused: dict[Any, Any] = {}


class Snapshot:
    """The arrays of a graph's leaves at one `forward()`, and the run that it put off; None if it was no forward."""

    __slots__ = ("arrays", "leaf_ids", "results", "run")

    def __init__(self, plan: RunPlan, arrays: tuple[Any, ...], run: DeferredRun | None = None) -> None:
        self.leaf_ids = plan.leaf_ids
        self.arrays = arrays
        self.run = run
        self.results: MutableMapping[Function, tuple[Any, ...]] | None = None
        """The results of the functions, where they ran one by one."""

    def by_leaf(self) -> dict[int, Any]:
        """The arrays by the ids of the leaves."""
        return dict(zip(self.leaf_ids, self.arrays, strict=True))


class DeferredRun:
    """A run of an executable, put off until the first of its results is read."""

    __slots__ = ("_arrays", "_executable", "_waiting")

    def __init__(self, executable: Callable[..., Any], arrays: tuple[Any, ...], cells: Sequence[NdArray]) -> None:
        self._executable = executable
        self._arrays = arrays
        values = [Deferred(self) for _ in cells]
        self._waiting: list[weakref.ref[Deferred]] | None = [weakref.ref(value) for value in values]
        hold_together(cells, values)

    @property
    def done(self) -> bool:
        """Whether the results are there."""
        return self._waiting is None

    def run(self) -> None:
        """Compute the results."""
        if self._waiting is not None:
            check_process()
            self.keep(self._executable(*self._arrays))

    def keep(self, results: Sequence[Any]) -> None:
        """Hand the results, computed here or elsewhere, to the values that still wait for them."""
        for ref, result in zip(self._waiting or (), results, strict=False):
            value = ref()
            if value is not None:
                value.fill(result)
        self._waiting = None  # at the end: what an interrupt leaves waiting is computed again

    def keep_if_complete(self, cells: Sequence[NdArray], results: Sequence[Any]) -> None:
        """Hand over what was computed for `cells`, if nothing else waits."""
        known = dict(zip(map(id, values_of(cells)), results, strict=True))
        waiting = [ref() for ref in self._waiting or ()]
        if all([value is None or id(value) in known for value in waiting]):
            self.keep([known.get(id(value)) for value in waiting])


def plan_of(outputs: Sequence[Variable]) -> RunPlan:
    """The plan for `outputs`; that of a single function's single output is kept on the function."""
    f = outputs[0].parent
    if len(outputs) != 1 or f is None or len(f.specs) != 1:
        return RunPlan(outputs)
    plan: RunPlan | None = f.plan
    if plan is None:
        plan = f.plan = RunPlan(outputs)
    return plan


def take_snapshot(outputs: Sequence[Variable]) -> Snapshot:
    """Freeze the leaves' values for `outputs`, and defer the values of the outputs, of persistent Variables
    and of the leaves that are updated."""
    plan = plan_of(outputs)
    arrays = tuple(arrays_of(plan.leaves))
    cells = [x.cell for x in (*outputs, *plan.kept, *plan.updated)]
    snapshot = Snapshot(plan, arrays, DeferredRun(plan.executable, arrays, cells))
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
    nothing is deferred."""
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
    """Compute a Variable that no `forward()` has deferred: from the snapshot of the forward that covered
    its function, or from the leaves' present values. What belongs to its family is computed with it, unless somebody
    watches functions run."""
    family = variable._family
    wanted = [variable] if family is None or watched() else family.waiting(variable)
    if len(wanted) > 1:
        try:
            evaluate_together(wanted)
        except Exception:  # of another one, perhaps; or they do not fit in memory at the same time
            variable._family = None
        else:
            return
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


class _Together(NamedTuple):
    """How some Variables are computed together. It refers to nothing that refers to them."""

    variables: tuple[int, ...]
    """Their ids; they are of one family, so each is the same Variable for as long as the family lives."""
    leaves: list[Variable]
    executable: Callable[..., tuple[Any, ...]]


def evaluate_together(wanted: list[Variable]) -> None:
    """Compute Variables of one family, which the same forward has covered, or none, by one executable."""
    snapshot: Snapshot | None = wanted[0].parent.snapshot  # type: ignore[union-attr]
    family, ids = wanted[0]._family, tuple(map(id, wanted))
    assert family is not None
    run: _Together | None = family.run
    if run is None or run.variables != ids:
        linear = linearize(wanted, device=device_of(wanted), effects=False)
        run = family.run = _Together(ids, linear.leaves, executable_of(linear.program))
    if snapshot is None:
        results = run.executable(*arrays_of(run.leaves, draw=False))
    else:
        arrays = snapshot.by_leaf()
        results = run.executable(*[arrays[id(x)] for x in run.leaves])
    put_together([y.cell for y in wanted], results)
    for y in wanted:
        y._at = snapshot


def device_of(outputs: Sequence[Variable]) -> jax.Device | None:
    """The device of the Context that the outputs' functions were made in."""
    for y in outputs:
        if y.parent is not None and y.parent.context is not None:
            device: jax.Device | None = y.parent.context.device
            return device
    return None
