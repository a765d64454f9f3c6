"""What runs in one piece when functions are watched: a function of the user's, or the backward of one."""

from __future__ import annotations

import heapq
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..graph import Function, RuleCall, Variable, build_options, functions_of
from ..graph.function import function_hooks


class Unit(NamedTuple):
    """Functions that run one after another, with nothing in between."""

    call: RuleCall | None
    """The call of a backward rule that emitted them; None for a single function."""
    functions: list[Function]


def hooks_of(f: Function) -> list[Any]:
    """The hooks that watch `f`: those in force, and its own."""
    own = function_hooks.get(weakref.ref(f)) if function_hooks else None
    return [*build_options().watching.hooks, *(own.values() if own else ())]


def any_watched(functions: Iterable[Function]) -> bool:
    """Whether somebody wants to see functions run: hooks or debug mode in this thread, or hooks that are on some of
    the functions, or on those that they are the backward of."""
    if build_options().watched:
        return True
    if not function_hooks:
        return False
    return any(weakref.ref(f) in function_hooks or (f.origin is not None and f.origin.hooks) for f in functions)


def units_of(functions: list[Function], through: Callable[[Variable], bool] | None = None) -> list[Unit]:
    """The functions, lowest rank first, in units, in an order in which these can run.

    Without hooks each function is a unit. With hooks all that one call of a backward rule emitted is one, and
    what its hooks are shown is among the functions: the inputs of the function whose rule it was, and
    the gradients of its outputs. Functions of the user's run as soon as they can, lowest rank first; then backward
    units in the order in which their rules were called.

    Units never wait for each other in a circle: what a call emits depends on what was there when it began.

    Args:
        functions: What shall run.
        through: Which Variables are not there yet; all by default.
    """
    if not build_options().watching.hooks and not function_hooks:
        return [Unit(None, [f]) for f in functions]
    functions = _completed(functions, through)
    members: dict[Function | RuleCall, list[Function]] = {}
    for f in functions:
        members.setdefault(_unit_key(f), []).append(f)
    units = {key: Unit(key if isinstance(key, RuleCall) else None, group) for key, group in members.items()}
    waiting = {
        key: {_unit_key(x.parent) for x in needed_by(unit) if x.parent is not None} & units.keys() - {key}
        for key, unit in units.items()
    }
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
    """Returns what hooks are shown of a call of a backward rule."""
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
    """Where a unit comes among those that can run."""
    f = unit.functions[0]
    origin = None if unit.call is None else unit.call.function
    return f.order, f.rank if origin is None else -origin.rank
