"""Values of Variables: run what a `forward()` has scheduled, from its snapshot of the leaves, and evaluate on demand.

The result of a read is determined by the graph, the leaves and the settings: results of one `nn.grad` are computed
together; other values by the executable of the graph above them. Earlier reads do not matter.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ..graph import Function, Variable, build_options, functions_of
from ..graph.engine import Hook
from ..graph.event import Event, Kind
from ..graph.placement import several_processes
from ..graph.process import at_once
from ..graph.value import OutputGroup, Thunk, Value
from ..graph.variable import cells_of
from .compiled import executables
from .interpret import More, interpret
from .lower import Linearized, Program, linearize
from .plans import (
    RunPlan,
    Snapshot,
    device_of,
    exchanging,
    forget_sources,
    is_current,
    numbers_of,
    plan_of,
    source_of,
    source_results,
)
from .program import arrays_of

_parent_of = attrgetter("parent")
_READ = object()
"""Stands for the leaves' values of a read without a forward."""
Computed = dict[Variable, Any]
"""Variables, and their values."""


def evaluate(variable: Variable) -> None:
    """Compute a Variable and its output group: from the snapshot of the forward that covered its function, or from the
    leaves' present values."""
    assert variable.parent is not None
    snapshot = variable.parent.snapshot
    computed = _computed_with(variable, snapshot)
    _hand_out(computed, [y for y in computed if y is variable or not y.is_computed], snapshot)


def _hand_out(computed: Computed, to: list[Variable], snapshot: Snapshot | None) -> None:
    """Store computed values in Variables atomically."""
    Value.write([y.cell for y in to], [computed[y] for y in to])
    for y in to:
        y._at = _READ if snapshot is None else snapshot


def _fill_intermediate(f: Function, index: int, snapshot: Snapshot, thunk: Thunk) -> None:
    """Compute the value of an intermediate Variable of a forward."""
    variable = f.outputs[index]
    computed = _computed_with(variable, snapshot)
    _hand_out(computed, [y for y in computed if not y.is_computed], snapshot)
    thunk.fill(computed[variable])


@at_once
def _computed_with(variable: Variable, snapshot: Snapshot | None) -> Computed:
    """The value of a Variable covered by the forward of `snapshot`, or without one at the leaves' present values; and
    those of its output group."""
    group = variable._group
    places = [] if group is None else group.covered_by(None if snapshot is None else snapshot.mark)
    members = [] if group is None else [y for y in group.members_at(places) if y is not None]
    watched = build_options().watched
    if group is not None and len(places) > 1 and not watched and any([y is variable for y in members]):
        try:
            return _together(group, places, snapshot)
        except Exception:  # perhaps raised by another member; or memory cannot hold all
            pass
    return {variable: (_watched if watched else _alone)(variable, snapshot)}


def _watched(variable: Variable, snapshot: Snapshot | None) -> Any:
    """The value of a Variable, computed op by op."""
    if snapshot is not None:
        return interpret([variable], snapshot.by_leaf(), snapshot.results)[0]
    plan = plan_of([variable])
    return interpret([variable], dict(zip(plan.leaf_ids, _arrays_of(plan.leaves, None), strict=True)))[0]


def _arrays_of(leaves: Sequence[Variable], snapshot: Snapshot | None) -> Sequence[Any]:
    """The arrays of leaves at a forward, or the present ones."""
    if snapshot is None:
        return arrays_of(leaves, draw=False, mesh=build_options().running.mesh)
    by_leaf = snapshot.by_leaf()
    return [by_leaf[id(x)] for x in leaves]


def _alone(variable: Variable, snapshot: Snapshot | None) -> Any:
    """The value of a Variable that is not watched and has no group."""
    if snapshot is not None and snapshot.exchanged:
        return _from_exchanged(variable, snapshot)
    # Processes that exchange arrays must all run the same program, whatever each of them has kept.
    alike = several_processes() and exchanging(functions_of([variable]))
    source = [] if alike else source_of(variable)
    plan = plan_of(source or [variable])
    arrays = _arrays_of(plan.leaves, snapshot)
    if not source:
        return plan.executable(*arrays)[0]
    results = source_results(source, plan, arrays)
    if variable.parent is source[0].parent:
        return results[variable.index]
    part = linearize([variable], first=source, device=device_of([variable]), effects=False)
    return executables.of(part.program)(*results)[0]


def _from_exchanged(variable: Variable, snapshot: Snapshot) -> Any:
    """The value of a Variable from values that a forward exchanged with other processes, which take no part now."""
    exchanged = snapshot.exchanged
    received: dict[int, tuple[Variable, Any]] = {}

    def is_to_compute(x: Variable) -> bool:
        number = None if x.parent is None else (x.parent.serial, x.index)
        if number in exchanged:
            received[id(x)] = x, exchanged[number]
        return number not in exchanged

    functions = functions_of([variable], through=is_to_compute)
    if received and not functions:
        return received[id(variable)][1]
    first = [x for x, _ in received.values()]
    linear = linearize([variable], first=first, device=device_of([variable]), effects=False, functions=functions)
    by_leaf = snapshot.by_leaf()
    arrays = [received[id(x)][1] if id(x) in received else by_leaf[id(x)] for x in linear.leaves]
    return executables.of(linear.program)(*arrays)[0]


class _Together(NamedTuple):
    """How members of an output group are computed. It refers to nothing that refers to them."""

    places: list[int]
    """The members that the same forward covers, or none."""
    computed: list[int]
    """The members that are computed: all of these, unless some are gone and could not be rebuilt."""
    program: Program
    leaves: list[Variable]
    executable: Callable[..., tuple[Any, ...]]


def _together(group: OutputGroup, places: list[int], snapshot: Snapshot | None) -> Computed:
    """The values of those members of an output group that the same forward has covered, or none, by one executable."""
    how: _Together | None = group.run
    if how is None or how.places != places or not is_current(how.program):
        computed, linear = _linearized(group, places)
        how = group.run = _Together(places, computed, linear.program, linear.leaves, executables.of(linear.program))
    results = how.executable(*_arrays_of(how.leaves, snapshot))
    return {y: array for y, array in zip(group.members_at(how.computed), results, strict=True) if y is not None}


def _linearized(group: OutputGroup, places: list[int]) -> tuple[list[int], Linearized]:
    """The members at these places that can be computed, and their program. It does not depend on whether somebody still
    holds all of them."""
    living = {i: y for i, y in zip(places, group.members_at(places), strict=True) if y is not None}
    linear = _program_of([*living.values()])
    if len(living) == len(places):
        return places, linear
    again = group.built_again()
    if again is not None:
        twins = _program_of([again[i] for i in living])
        # Otherwise the graph has changed since, or user code builds a different one each time.
        if twins.program == linear.program and list(map(id, twins.leaves)) == list(map(id, linear.leaves)):
            return places, _program_of([again[i] for i in places])
    return [*living], linear


def _program_of(outputs: Sequence[Variable]) -> Linearized:
    return linearize(outputs, device=device_of(outputs), effects=False)


def forget_runs(functions: list[Function]) -> None:
    """Discard how functions were run and their results, because their inputs have been replaced."""
    forget_sources(functions)
    for f in functions:
        f.plan = f.snapshot = None
        for ref in f._outputs:
            y = ref()
            if y is not None:
                y._at = y._group = None
                if y._data is not None:
                    y._data.zero()


# ---------------------------------------------------------------- forward


def take_snapshot(outputs: Sequence[Variable], plan: RunPlan | None = None) -> Snapshot:
    """Capture the leaves' values for `outputs`, and defer the values of the outputs, of persistent Variables and of the
    leaves that are updated."""
    plan = plan_of(outputs) if plan is None else plan
    arrays = tuple(arrays_of(plan.leaves, mesh=plan.program.mesh, keys=plan.keys))
    if np.ndarray in map(type, arrays) and plan.program.device is plan.program.mesh is None:
        before = None if outputs[0].parent is None else outputs[0].parent.snapshot
        former = before.arrays if before is not None and before.leaf_ids is plan.leaf_ids else ()
        for leaf, array, last in zip(plan.leaves, arrays, former, strict=False):
            if array is last and array.__class__ is np.ndarray:
                leaf.cell.held.as_jax()  # it stays, and JAX would move it anew at each forward
    snapshot = Snapshot(plan, arrays, cells_of((*outputs, *plan.kept, *plan.updated)))
    for y in (*outputs, *plan.kept):
        y._at = snapshot
    for group, serials in plan.members.items():
        group.cover(serials, snapshot.mark)
    for f in (*plan.functions, *set(map(_parent_of, outputs))):
        f.snapshot = snapshot
        if f.settled:
            continue
        for ref in r if (r := f._output).__class__ is tuple else (r,):
            x = ref()
            if x is not None and x._data is not None and x._at is not snapshot:
                x._at = snapshot  # others may share its cell, and find this forward's value there
                x._data.defer(functools.partial(_fill_intermediate, f, x.index, snapshot))
    return snapshot


@at_once
def forward(outputs: list[Variable], function_pre_hook: Hook = None, function_post_hook: Hook = None) -> None:
    """Compute `outputs` from the leaves' present values; see `Variable.forward`."""
    computed = [y for y in outputs if y.parent is not None]
    if not computed:
        return
    plan = plan_of(computed)
    snapshot = take_snapshot(computed, plan)
    if plan.group is not None:
        snapshot.compute()  # now: the others would wait for a process that never reads it
        keep_exchanged(computed, plan, snapshot)
    if function_pre_hook is not None or function_post_hook is not None or build_options().watched:
        run_one_by_one(computed, snapshot, snapshot.by_leaf(), function_pre_hook, function_post_hook)


def keep_exchanged(outputs: Sequence[Variable], plan: RunPlan, snapshot: Snapshot) -> None:
    """Keep the values that a forward has exchanged, so that later reads need no other processes."""
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
    """Compute `outputs` op by op, with `before` and `after` called around each function that is `hooked`; results that
    `snapshot` covers are kept with it, so that each function runs once."""
    known = snapshot.results
    if known is None:
        known = snapshot.results = weakref.WeakKeyDictionary()

    def keep(event: Event) -> None:
        f = event.function
        if f.snapshot is snapshot:
            known[f] = event.results
            for y, result in zip(f.outputs, event.results, strict=True):
                y.cell.put(result)
                y._at = snapshot

    def calling(hook: Hook, kind: Kind) -> More:
        return [(lambda event: hook and hooked(event.function) and hook(event.function), [kind])]

    more: More = [*calling(before, "runs"), (keep, ["ran"]), *calling(after, "ran")]
    return interpret(outputs, leaves, known, more)
