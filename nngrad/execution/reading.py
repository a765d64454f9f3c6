"""Values that are read: what no `forward()` has deferred, from what is known already of the same values of the leaves.

The first that is read is computed by an executable of its own. What is read after it is computed from its nearest
neighbours that are known, function by function, as long as that is little work; so many reads compile little, and the
way from the leaves is not gone again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ..graph import Function, Variable, build_options
from ..graph.function import watched
from ..graph.leaf import arrays_of
from ..graph.thresholds import A_COMPILATION, FEW, MOST_BYTES_UNASKED, MOST_TIMES, OFTEN, SMALL_RESULT
from ..graph.traverse import by_rank
from ..graph.value import Deferred, put_together
from .compiled import BoundedCache, executable_of, executables
from .interpret import interpret, results_of
from .lower import linearize
from .plans import Snapshot, device_of, exchanging, is_watched, plan_of, present


class Reading:
    """What was computed without a `forward()` from the leaves' present values, as long as they stay what they were."""

    __slots__ = ("_leaves", "unasked")

    def __init__(self) -> None:
        self._leaves: dict[int, tuple[Variable, Callable[[], Any]]] = {}
        self.unasked = 0

    def depend_on(self, leaves: Sequence[Variable], arrays: Sequence[Any]) -> None:
        """Let results depend on leaves besides, which have these arrays now. Large ones are not kept alive: another
        array means that the leaf was written to, or lent to somebody who may."""
        for x, array in zip(leaves, arrays, strict=True):
            self._leaves[id(x)] = x, _reference_to(array)

    @property
    def leaves(self) -> list[Variable]:
        """The leaves that results depend on."""
        return [x for x, _ in self._leaves.values()]

    @property
    def arrays(self) -> list[Any]:
        """Their arrays, None where one is gone."""
        return [ref() for _, ref in self._leaves.values()]


State = Reading | Snapshot
"""Values of the leaves. A function knows those for which it was covered last by reading, and its results, by their
numbers, if there are any: `Function.known`."""

Known = tuple[State, dict[int, Any] | None]


def _reference_to(array: Any) -> Callable[[], Any]:
    """What gives an array as long as it is alive; a small one of NumPy is kept, to be compared with what is there."""
    if array is None or (isinstance(array, np.ndarray) and array.nbytes <= SMALL_RESULT):
        return lambda: array
    return weakref.ref(array)


def _is_present(state: State) -> bool:
    """Whether all leaves still have the arrays of `state`. What is lent may have been written to."""
    for x, array in zip(state.leaves, state.arrays, strict=True):
        value = x.cell._value
        if array is None or value.lent or (value.__class__ is Deferred and value.array is None):
            return False
        if value.array is not array and value.raw() is not array:
            return False
    return True


class _Unknown(NamedTuple):
    """What has to run for a value, and what it runs on."""

    functions: list[Function]
    """Lowest rank first."""
    known: dict[int, Any]
    """Arrays of Variables that are known, by their ids."""
    given: list[Variable]
    """Those Variables."""
    leaves: list[Variable]


def _unknown_above(variable: Variable, used: Callable[[State], bool]) -> _Unknown:
    """The functions above `variable`, as far as their results are not known.

    Args:
        variable: What is read.
        used: Says of a state whether its results are. Those of another device than that of `variable` are not.
    """
    root = variable.parent
    assert root is not None
    device = _device(root)
    found = {root: None}  # no set, so that equal structures have one order
    stack = [root]
    known: dict[int, Any] = {}
    given: list[Variable] = []
    leaves: dict[int, Variable] = {}
    while stack:
        for x in stack.pop().inputs:
            f = x.parent
            if f is None:
                leaves[id(x)] = x
            elif f not in found:
                covered: Known | None = f.known
                if covered is not None and id(x) not in known and used(covered[0]) and _device(f) is device:
                    results = covered[1]
                    if results is not None and x.index in results:
                        known[id(x)] = results[x.index]
                        given.append(x)
                if id(x) not in known:
                    found[f] = None
                    stack.append(f)
    return _Unknown(sorted(found, key=by_rank), known, given, list(leaves.values()))


def keep(state: State, y: Variable, array: Any) -> None:
    """Keep a value with its function, as long as that is not read in another state."""
    f = y.parent
    assert f is not None
    known: Known | None = f.known
    results = None if known is None or known[0] is not state else known[1]
    if results is None:
        results = {}
        f.known = state, results
    results[y.index] = array


def evaluate(variable: Variable) -> None:
    """Compute a Variable that no `forward()` has deferred: from the snapshot of the forward that covered
    its function, or from the leaves' present values. What belongs to its family is computed with it, unless somebody
    watches functions run."""
    assert variable.parent is not None
    snapshot: Snapshot | None = variable.parent.snapshot
    family = variable._family
    wanted = [variable] if family is None or watched() else family.waiting(variable)
    if len(wanted) > 1:
        try:
            _evaluate_together(wanted, snapshot)
        except Exception:  # of another one, perhaps; or they do not fit in memory at the same time
            variable._family = None
        else:
            return
    array = value_at(variable, snapshot)
    variable.cell.put(array)
    known: Known | None = variable.parent.known
    is_known = known is not None and known[1] is not None and known[1].get(variable.index) is array
    variable._at = known[0] if known is not None and is_known else snapshot


def value_at(variable: Variable, snapshot: Snapshot | None) -> Any:
    """The value of a Variable that the forward of `snapshot` has covered; without one at the leaves' present values."""
    if not is_watched([variable]):
        return _at_present(variable) if snapshot is None else _at(snapshot, variable)
    if snapshot is None:
        return interpret([variable], present([variable]).by_leaf())[0]
    return interpret([variable], snapshot.by_leaf(), known=snapshot.results)[0]


def _at(snapshot: Snapshot, variable: Variable) -> Any:
    """The value of a Variable that a forward has covered."""
    arrays = snapshot.array_of
    if arrays is None:
        arrays = snapshot.array_of = snapshot.by_leaf()
        plan = plan_of([variable])
        array = plan.executable(*[arrays[i] for i in plan.leaf_ids])[0]
    else:
        array = _again(variable, snapshot)
        if array is None:
            array = _run(variable, _unknown_above(variable, lambda state: state is snapshot), arrays, snapshot)
    keep(snapshot, variable, array)
    return array


def _at_present(variable: Variable) -> Any:
    """The value of a Variable that no forward has covered."""
    used: dict[State, bool] = {}
    """Each state that was met, and whether the leaves have not changed since."""

    def is_used(state: State) -> bool:
        return used.setdefault(state, True)

    while True:
        unknown = _unknown_above(variable, is_used)
        covered = unknown.functions[-1].known
        if covered is not None:
            is_used(covered[0])
        taken = arrays_of(unknown.leaves, draw=False, mesh=build_options().running.mesh)
        # After the arrays were taken: what another thread writes now comes later than all that is used here.
        late = [state for state, valid in used.items() if valid and not _is_present(state)]
        if not late:
            break
        used |= dict.fromkeys(late, False)
    if exchanging(unknown.functions):
        # As in the other processes, whatever each of them has read before: the same program, from the leaves.
        plan = plan_of([variable])
        array: Any = plan.executable(*arrays_of(plan.leaves, draw=False))[0]
        return array
    states = [state for state, valid in used.items() if valid]
    reading = next((state for state in states if isinstance(state, Reading)), None) or Reading()
    for state in states:
        if state is not reading:
            reading.depend_on(state.leaves, state.arrays)
    reading.depend_on(unknown.leaves, taken)
    arrays = dict(zip(map(id, unknown.leaves), taken, strict=True))
    known: Known = reading, None
    for f in unknown.functions:
        f.known = known
    if states:
        array = _run(variable, unknown, arrays, reading)
    else:
        plan = plan_of([variable], unknown.functions)
        array = plan.executable(*[arrays[i] for i in plan.leaf_ids])[0]
    keep(reading, variable, array)
    return array


def _device(f: Function) -> jax.Device | None:
    device: jax.Device | None = None if f.context is None else f.context.device
    return device


def _run(variable: Variable, unknown: _Unknown, arrays: dict[int, Any], state: State) -> Any:
    """Compute `variable` from what is known of `state`, and from these arrays of the leaves."""
    functions = unknown.functions
    if len(functions) == 1:
        return _one_by_one(variable, unknown, arrays, state, variable.spec.nbytes)
    device = device_of([variable])
    linear = linearize([variable], first=unknown.given, device=device, effects=False, functions=functions)
    times = _times_met(linear.program)
    nbytes = sum([spec.nbytes for f in functions for spec in f.specs])
    if (
        _are_recurring(functions)
        and times <= (OFTEN if len(functions) > FEW else MOST_TIMES)
        and nbytes <= MOST_BYTES_UNASKED
        and all([_device(f) is device for f in functions])
    ):
        return _one_by_one(variable, unknown, arrays, state, nbytes)
    _times_met(linear.program, MOST_TIMES)  # now it has an executable
    executable = executable_of(linear.program)
    assert variable.parent is not None
    if len(variable.parent.specs) == 1:
        _routes[variable.parent] = _Route(linear.leaves, executable)
    given = [unknown.known[id(x)] if id(x) in unknown.known else arrays[id(x)] for x in linear.leaves]
    return executable(*given)[0]


_met = executables.registered(BoundedCache(1 << 14))
"""How often programs and applications of ops were met, by their hashes."""


def _times_met(what: Hashable, more: int = 1) -> int:
    """How often something was met, this time included."""
    count: list[int] = _met.get(hash(what), lambda: [0])
    count[0] += more
    return count[0]


def _are_recurring(functions: Sequence[Function]) -> bool:
    """Whether so many of the functions do what was done before, with these shapes, that the others are compiled one by
    one in less time than all in one executable."""
    kinds = {(f.op, f.arguments, *[x.spec for x in f.inputs]) for f in functions}
    new = [kind for kind in kinds if _times_met(kind) == 1]
    return len(new) <= 1 + len(functions) // A_COMPILATION


class _Route(NamedTuple):
    """How a value was computed from what was known."""

    start: list[Variable]
    executable: Callable[..., tuple[Any, ...]]


_routes: weakref.WeakKeyDictionary[Function, _Route] = weakref.WeakKeyDictionary()
"""How single outputs were computed last, if by an executable, for graphs that are run again and again."""


def forget(functions: list[Function]) -> None:
    """Forget how functions were run, and what they gave: what they are computed from is another."""
    for f in functions:
        f.plan = f.known = f.snapshot = None
        _routes.pop(f, None)
        for ref in f._outputs:
            y = ref()
            if y is not None:
                y._at = y._family = None
                if y._data is not None:
                    y._data.zero()


def _again(variable: Variable, snapshot: Snapshot) -> Any:
    """The value of a Variable by the route that it had before; None if there is none, or not all is known for it."""
    f, arrays = variable.parent, snapshot.array_of
    assert f is not None
    assert arrays is not None
    route = _routes.get(f)
    if route is None:
        return None
    given = []
    for x in route.start:
        if x.parent is None:
            given.append(arrays[id(x)])
            continue
        known = x.parent.known
        if known is None or known[0] is not snapshot or known[1] is None or x.index not in known[1]:
            return None
        given.append(known[1][x.index])
    return route.executable(*given)[0]


def _one_by_one(variable: Variable, unknown: _Unknown, arrays: dict[int, Any], state: State, nbytes: int) -> Any:
    """Run functions by themselves, and keep what they compute if there is room for it."""
    values = unknown.known
    results: dict[Function, Sequence[Any]] = {}
    for f in unknown.functions:
        given = [
            arrays[id(x)] if x.parent is None else values[id(x)] if id(x) in values else results[x.parent][x.index]
            for x in f.inputs
        ]
        results[f] = results_of(f, given)
    if state.unasked + nbytes <= MOST_BYTES_UNASKED:
        state.unasked += nbytes - variable.spec.nbytes
        for f, made in results.items():
            f.known = state, dict(enumerate(made))
    assert variable.parent is not None
    return results[variable.parent][variable.index]


class _Together(NamedTuple):
    """How some Variables are computed together. It refers to nothing that refers to them."""

    variables: tuple[int, ...]
    """Their ids; they are of one family, so each is the same Variable for as long as the family lives."""
    leaves: list[Variable]
    executable: Callable[..., tuple[Any, ...]]


def _evaluate_together(wanted: list[Variable], snapshot: Snapshot | None) -> None:
    """Compute Variables of one family, which the same forward has covered, or none, by one executable."""
    family, ids = wanted[0]._family, tuple(map(id, wanted))
    assert family is not None
    run: _Together | None = family.run
    if run is None or run.variables != ids:
        linear = linearize(wanted, device=device_of(wanted), effects=False)
        run = family.run = _Together(ids, linear.leaves, executable_of(linear.program))
    if snapshot is None:
        arrays = arrays_of(run.leaves, draw=False, mesh=build_options().running.mesh)
        reading = Reading()
        reading.depend_on(run.leaves, arrays)
    else:
        by_leaf = snapshot.by_leaf()
        arrays = [by_leaf[id(x)] for x in run.leaves]
    state = reading if snapshot is None else snapshot
    results = run.executable(*arrays)
    put_together([y.cell for y in wanted], results)
    for y, result in zip(wanted, results, strict=True):
        keep(state, y, result)
        y._at = state
