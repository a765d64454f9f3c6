"""Op-by-op execution: every function runs by itself, with concrete arrays, and hooks can watch."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from ..graph import Function, Op, RuleCall, Variable, build_options, engine, functions_of
from ..graph.block import has_opaque
from ..graph.bounded_cache import BoundedCache
from ..graph.event import AROUND, Event, Execution, Kind, Listener
from ..graph.op import arguments_need_x64
from ..graph.placement import Mesh, Placement, group_of, groups_of, several_processes
from ..graph.process import at_once
from ..graph.thresholds import MOST_INPUTS_OF_AN_OP
from ..graph.traverse import as_made, before_their_turns, taken_in_turn
from ..graph.value import Value
from .compiled import bytes_of
from .executable import Executable, Settings
from .lower import by_itself
from .program import arrays_of

More = Sequence[tuple[Listener, Sequence[Kind]]]
Arrays = tuple[Any, ...]

single_ops = BoundedCache.about_structures(4096, most_bytes=1 << 30)
"""Executables of single ops, by op, arguments and placement."""


def executable_of_op(
    op: Op,
    arguments: tuple[Any, ...],
    device: jax.Device | None,
    needs_x64: bool,
    compiled: bool = True,
    mesh: Mesh | None = None,
) -> Callable[..., Any]:
    """The executable of one op."""

    def make() -> Callable[..., Any]:
        forward = op.bind(arguments)
        group = group_of(groups_of(op, arguments)) if several_processes() else None
        if group is not None:
            return Executable(Placement.across(forward, group, device), Settings(device, needs_x64))
        if not compiled and mesh is None:
            return Executable(forward, Settings(device, needs_x64))
        settings = Settings(None if mesh is not None else device, needs_x64, mesh)
        return Executable(jax.jit(by_itself(op, arguments)), settings, opaque=has_opaque(arguments), divided=mesh)

    table = single_ops.part((op,))
    key = op, arguments, device, needs_x64, compiled, mesh
    result: Callable[..., Any] = table.get(key, make, bytes_of(1))
    return result


def results_of(f: Function, arrays: Sequence[Any]) -> Arrays:
    """The outputs of `f` for given input arrays."""
    specs = [*f.specs, *[x.spec for x in f.inputs]]
    needs_x64 = any([s.needs_x64 for s in specs]) or arguments_need_x64(f.arguments)
    device = None if f.context is None else f.context.device
    mesh = build_options().running.mesh
    out = executable_of_op(f.op, f.arguments, device, needs_x64, len(arrays) <= MOST_INPUTS_OF_AN_OP, mesh)(*arrays)
    return tuple(out) if f.op.multiple_results else (out,)


def run_unit(
    unit: Unit,
    value: Callable[[Variable], Any],
    run: Callable[[Function, list[Any]], Arrays],
) -> None:
    """Run the functions of a unit, and tell those who listen to what is around whole functions.

    Args:
        unit: A function that the user built, or all that one call of a backward rule emitted.
        value: Returns the array of a Variable.
        run: Runs a function on arrays and stores its results.
    """
    origin = None if unit.call is None else unit.call.function
    if unit.call is None or origin is None:
        for f in unit.functions:
            inputs = [value(x) for x in f.inputs]
            if f.order or not build_options().hears(*AROUND):
                run(f, inputs)
                continue
            _tell_around("before", f, tuple(inputs), None)
            jax.block_until_ready(run(f, inputs))  # hooks may measure time
            _tell_around("after", f, tuple(inputs), None)
        return
    in_data = tuple([value(x) for x in origin.inputs])
    out_grad = tuple([None if gy is None else value(gy) for gy in unit.call.grad_outputs])
    _tell_around("before", origin, in_data, out_grad)
    results = ()
    for f in unit.functions:
        results = (*results, *run(f, [value(x) for x in f.inputs]))
    jax.block_until_ready(results)
    del results
    _tell_around("after", origin, in_data, out_grad)


def _tell_around(kind: Kind, f: Function, inputs: Arrays, gradients: Arrays | None) -> None:
    event = Event(kind, f, inputs, (), gradients)
    for hear in build_options().listeners[kind]:
        hear(event)


@at_once
def run_functions(functions: list[Function]) -> None:
    """Compute the outputs of those functions, given by ascending rank, whose outputs are missing."""
    missing = [f for f in functions if not all([y.is_computed for y in f.outputs])]
    for unit in units_of(missing, through=lambda x: not x.is_computed):

        def run(f: Function, inputs: list[Any]) -> Arrays:
            execution = Execution(f.outputs)
            _tell("runs", f, inputs, (), execution)
            results = results_of(f, inputs)
            _tell("ran", f, inputs, results, execution)
            for y, result in zip(f.outputs, results, strict=True):
                y.cell.put(result)
            Value.write([leaf.cell for leaf, _ in f.effects], [results[index] for _, index in f.effects])
            return results

        run_unit(unit, _computed, run)


def _computed(x: Variable) -> Any:
    if x.parent is not None and not x.is_computed:
        engine.evaluate(x)
    return arrays_of([x], draw=False)[0]


def interpret(
    outputs: Sequence[Variable],
    leaves: dict[int, Any],
    known: Mapping[Function, Arrays] | None = None,
    more: More = (),
) -> list[Any]:
    """Run the graph above `outputs` op by op, and return their arrays.

    Args:
        outputs: The Variables to compute.
        leaves: Arrays of the leaves, by the leaves' ids; others are read from their cells.
        known: Results of functions that need not run again.
        more: What listens to this run alone, before those in force: each with the kinds of events.
    """
    values: dict[tuple[Function, int], Any] = {}
    newest: dict[int, Any] = {}
    known, execution = known or {}, Execution(outputs)

    def value(x: Variable) -> Any:
        if x.parent is not None:
            return values[x.parent, x.index]
        return leaves[id(x)] if id(x) in leaves else x.cell.raw()

    def run(f: Function, inputs: list[Any]) -> Arrays:
        _tell("runs", f, inputs, (), execution, more)
        if taken_in_turn(f):
            inputs = [newest.get(id(x), array) for x, array in zip(f.inputs, inputs, strict=True)]
        results = results_of(f, inputs)
        newest.update([(id(leaf), results[index]) for leaf, index in f.effects])
        keep(f, results)
        _tell("ran", f, inputs, results, execution, more)
        return results

    def keep(f: Function, results: Arrays) -> None:
        for i, result in enumerate(results):
            if left[f, i]:
                values[f, i] = result

    units = units_of(functions_of(outputs))
    needs = [needed_by(unit) for unit in units]
    left = Counter([(x.parent, x.index) for xs in (*needs, outputs) for x in xs if x.parent is not None])
    for unit, xs in zip(units, needs, strict=True):
        if unit.call is None and unit.functions[0] in known:
            (f,) = unit.functions
            keep(f, known[f])
            if build_options().hears("kept"):
                _tell("kept", f, [value(x) for x in f.inputs], known[f], execution)
        else:
            run_unit(unit, value, run)
        for x in xs:
            if x.parent is not None:
                left[x.parent, x.index] -= 1
                if not left[x.parent, x.index]:
                    values.pop((x.parent, x.index), None)  # no longer needed
    return [value(y) for y in outputs]


def _tell(kind: Kind, f: Function, inputs: list[Any], results: Arrays, execution: Execution, more: More = ()) -> None:
    event = Event(kind, f, tuple(inputs), results, None, execution)
    for hear in (*[hear for hear, kinds in more if kind in kinds], *build_options().listeners[kind]):
        hear(event)


# ---------------------------------------------------------------- hooks, and units that run in one piece


class Unit(NamedTuple):
    """Functions that run one after another without interruption."""

    call: RuleCall | None
    """The call of a backward rule that emitted them; None for a single function."""
    functions: list[Function]


def units_of(functions: list[Function], through: Callable[[Variable], bool] | None = None) -> list[Unit]:
    """Group functions, given by ascending rank, into units, in topological order.

    Without hooks each function is a unit. With hooks, all functions that one call of a backward rule emitted are one,
    and whatever its hooks are shown is computed too: the inputs of the function whose rule it was, and the gradients of
    its outputs. The user's functions run as soon as they can, by ascending rank; then backward units in the order in
    which their rules were called.

    Units never wait for each other in a circle: what a call emits depends on what existed when it began.

    Args:
        functions: The functions to run.
        through: Which Variables are not computed yet; all by default.
    """
    if not build_options().hears(*AROUND):
        return [Unit(None, [f]) for f in (as_made(functions) if before_their_turns(functions) else functions)]
    functions = _completed(functions, through)
    members: dict[Function | RuleCall, list[Function]] = {}
    for f in functions:
        members.setdefault(_unit_key(f), []).append(f)
    units = {key: Unit(key if isinstance(key, RuleCall) else None, group) for key, group in members.items()}
    waiting = {
        key: {_unit_key(x.parent) for x in needed_by(unit) if x.parent is not None} & units.keys() - {key}
        for key, unit in units.items()
    }
    for before, f in before_their_turns(functions):
        waiting[f].add(before)
    followers: dict[Any, list[Any]] = {key: [] for key in units}
    for key, others in waiting.items():
        for other in others:
            followers[other].append(key)
    ready = [(_place(unit), i, key) for i, (key, unit) in enumerate(units.items()) if not waiting[key]]
    heapq.heapify(ready)
    numbers = {key: i for i, key in enumerate(units)}
    ordered = []
    while ready:
        _, _, key = heapq.heappop(ready)
        ordered.append(units[key])
        for follower in followers[key]:
            waiting[follower].discard(key)
            if not waiting[follower]:
                heapq.heappush(ready, (_place(units[follower]), numbers[follower], follower))
    return ordered


def needed_by(unit: Unit) -> list[Variable]:
    """The Variables whose values are needed to run a unit."""
    return [x for f in unit.functions for x in f.inputs] + _shown(unit.call)


def _shown(call: RuleCall | None) -> list[Variable]:
    """The Variables that hooks are shown about a call of a backward rule."""
    f = None if call is None else call.function
    if call is None or f is None:
        return []
    return [*f.inputs, *[gy for gy in call.grad_outputs if gy is not None]]


def _completed(functions: list[Function], through: Callable[[Variable], bool] | None) -> list[Function]:
    """`functions`, and those that compute what hooks are shown."""
    while True:
        calls = {f.call for f in functions}
        shown = [x for call in calls for x in _shown(call)]
        more = functions_of([*[y for f in functions for y in f.outputs], *shown], through)
        if len(more) == len(functions):
            return more
        functions = more


def _unit_key(f: Function) -> Function | RuleCall:
    call = f.call
    return f if call is None or not call.grad_outputs or call.function is None else call


def _place(unit: Unit) -> tuple[int, int]:
    """A unit's priority among those that can run."""
    f = unit.functions[0]
    origin = None if unit.call is None else unit.call.function
    return f.order, f.rank if origin is None else -origin.rank
