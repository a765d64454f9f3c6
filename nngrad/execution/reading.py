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

from ..graph import Function, Variable
from ..graph.function import watched
from ..graph.leaf import arrays_of
from ..graph.traverse import by_rank
from ..graph.value import Deferred, put_together
from .compiled import BoundedCache, executable_of
from .forward import Computed, Snapshot, device_of, is_watched, plan_of, present
from .interpret import interpret, results_of
from .lower import linearize

A_COMPILATION = 5
"""So many functions more or less in an executable make the difference that one compilation makes."""

FEW = 4
"""So many functions hardly run faster as one executable than one by one."""

OFTEN = 3
"""How often more than a few functions run one by one, before they are compiled together."""

MOST_TIMES = 1 << 60
"""How often a few do."""

MOST_BYTES = 64 << 20
"""How large the results may be, of one read and of all for the same values of the leaves, that are kept unasked."""


class Reading:
    """What was computed without a `forward()` from the leaves' present values, as long as they stay what they were."""

    __slots__ = ("_leaves", "computed")

    def __init__(self) -> None:
        self._leaves: dict[int, tuple[Variable, Callable[[], Any]]] = {}
        self.computed = Computed()

    def depend_on(self, leaves: Sequence[Variable], arrays: Sequence[Any]) -> None:
        """Let results depend on leaves besides, which have these arrays now. They are not kept alive: another array
        means that the leaf was written to."""
        for x, array in zip(leaves, arrays, strict=True):
            self._leaves[id(x)] = x, _nothing if array is None else weakref.ref(array)

    @property
    def leaves(self) -> list[Variable]:
        """The leaves that results depend on."""
        return [x for x, _ in self._leaves.values()]

    @property
    def arrays(self) -> list[Any]:
        """Their arrays, None where one is gone."""
        return [ref() for _, ref in self._leaves.values()]


State = Reading | Snapshot


def _nothing() -> None:
    """In place of a reference to an array that is gone."""


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


def _unknown_above(variable: Variable, known_of: Callable[[Function], dict[int, Any] | None]) -> _Unknown:
    """The functions above `variable`, as far as their results are not known."""
    assert variable.parent is not None
    found = {variable.parent: None}  # equal structures in one order
    stack = [variable.parent]
    known: dict[int, Any] = {}
    given: list[Variable] = []
    leaves: dict[int, Variable] = {}
    while stack:
        for x in stack.pop().inputs:
            f = x.parent
            if f is None:
                leaves[id(x)] = x
            elif f not in found and id(x) not in known:
                results = known_of(f)
                if results is not None and x.index in results:
                    known[id(x)] = results[x.index]
                    given.append(x)
                else:
                    found[f] = None
                    stack.append(f)
    return _Unknown(sorted(found, key=by_rank), known, given, list(leaves.values()))


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
    if is_watched([variable]):
        if snapshot is None:
            (array,) = interpret([variable], present([variable]).by_leaf())
        else:
            (array,) = interpret([variable], snapshot.by_leaf(), known=snapshot.results)
    else:
        array = _at_present(variable) if snapshot is None else _at(snapshot, variable)
    variable.cell.put(array)
    variable._at = snapshot


def _at(snapshot: Snapshot, variable: Variable) -> Any:
    """The value of a Variable that a forward has covered."""
    computed = snapshot.computed
    if computed is None:
        computed = snapshot.computed = Computed()
        plan = plan_of([variable])
        arrays = snapshot.by_leaf()
        array = plan.executable(*[arrays[i] for i in plan.leaf_ids])[0]
    else:
        if computed.arrays is None:
            computed.arrays = snapshot.by_leaf()
        array = _again(variable, computed.arrays, computed)
        if array is None:
            unknown = _unknown_above(variable, _on_device(variable, computed.of))
            array = _run(variable, unknown, computed.arrays, computed)
    computed.keep(variable, array)
    return array


def _at_present(variable: Variable) -> Any:
    """The value of a Variable that no forward has covered."""
    changed: list[State] = []
    while True:
        unknown, used = _with_present(variable, changed)
        taken = arrays_of(unknown.leaves, draw=False)
        # After the arrays were taken: what another thread writes now comes later than all that is used here.
        late = [state for state in used if not _is_present(state)]
        if not late:
            break
        changed += late
    reading = next((state for state in used if isinstance(state, Reading)), None) or Reading()
    for state in used:
        if state is not reading:
            reading.depend_on(state.leaves, state.arrays)
    reading.depend_on(unknown.leaves, taken)
    arrays = dict(zip(map(id, unknown.leaves), taken, strict=True))
    if used:
        array = _run(variable, unknown, arrays, reading.computed)
    else:
        plan = plan_of([variable], unknown.functions)
        array = plan.executable(*[arrays[i] for i in plan.leaf_ids])[0]
    for f in unknown.functions:
        f.reading = reading
    reading.computed.keep(variable, array)
    return array


def _with_present(variable: Variable, changed: Sequence[State]) -> tuple[_Unknown, list[State]]:
    """What has to run for a value, and the states in which functions above it were computed, `changed` ones left out:
    what is known is of these."""
    used: dict[State, None] = {}

    def known_of(f: Function) -> dict[int, Any] | None:
        for state in (getattr(f, "reading", None), f.snapshot):
            if state is not None and state.computed is not None and state not in changed:
                used[state] = None
                results: dict[int, Any] | None = state.computed.of(f)
                if results is not None:
                    return results
        return None

    assert variable.parent is not None
    known_of(variable.parent)
    return _unknown_above(variable, _on_device(variable, known_of)), list(used)


def _on_device(
    variable: Variable, known_of: Callable[[Function], dict[int, Any] | None]
) -> Callable[[Function], dict[int, Any] | None]:
    """`known_of`, for results that are where `variable` is to be."""
    device = device_of([variable])
    return lambda f: known_of(f) if _device(f) is device else None


def _device(f: Function) -> jax.Device | None:
    device: jax.Device | None = None if f.context is None else f.context.device
    return device


def _run(variable: Variable, unknown: _Unknown, arrays: dict[int, Any], computed: Computed) -> Any:
    """Compute `variable` from what is known."""
    functions = unknown.functions
    device = device_of([variable])
    linear = linearize([variable], first=unknown.given, device=device, effects=False, functions=functions)
    times = _times_met(linear.program)
    nbytes = sum([spec.nbytes for f in functions for spec in f.specs])
    if (
        _are_recurring(functions)
        and times <= (OFTEN if len(functions) > FEW else MOST_TIMES)
        and nbytes <= MOST_BYTES
        and all([_device(f) is device for f in functions])
    ):
        return _one_by_one(variable, unknown, arrays, computed, nbytes)
    _times_met(linear.program, MOST_TIMES)  # now it has an executable
    executable = executable_of(linear.program)
    assert variable.parent is not None
    if len(variable.parent.specs) == 1:
        _routes[variable.parent] = _Route(linear.leaves, executable)
    given = [unknown.known[id(x)] if id(x) in unknown.known else arrays[id(x)] for x in linear.leaves]
    return executable(*given)[0]


_met = BoundedCache(1 << 14)
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


def _again(variable: Variable, leaves: dict[int, Any], computed: Computed) -> Any:
    """The value of a Variable by the route that it had before; None if there is none, or not all is known for it."""
    assert variable.parent is not None
    route = _routes.get(variable.parent)
    if route is None:
        return None
    given = [leaves[id(x)] if x.parent is None else (computed.of(x.parent) or {}).get(x.index) for x in route.start]
    return None if any([array is None for array in given]) else route.executable(*given)[0]


def _one_by_one(
    variable: Variable, unknown: _Unknown, arrays: dict[int, Any], computed: Computed, nbytes: int
) -> Any:
    """Run functions by themselves, and keep what they compute if there is room for it."""
    values = dict(unknown.known)
    results: dict[Function, Sequence[Any]] = {}
    for f in unknown.functions:
        given = [
            arrays[id(x)] if x.parent is None else values[id(x)] if id(x) in values else results[x.parent][x.index]
            for x in f.inputs
        ]
        results[f] = results_of(f, given)
    computed.keep_unasked(results, nbytes - variable.spec.nbytes, MOST_BYTES)
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
        arrays = arrays_of(run.leaves, draw=False)
        reading = Reading()
        reading.depend_on(run.leaves, arrays)
        computed = reading.computed
        for y in wanted:
            y.parent.reading = reading  # type: ignore[union-attr]
    else:
        by_leaf = snapshot.by_leaf()
        arrays = [by_leaf[id(x)] for x in run.leaves]
        computed = snapshot.computed = snapshot.computed or Computed()
    results = run.executable(*arrays)
    put_together([y.cell for y in wanted], results)
    for y, result in zip(wanted, results, strict=True):
        computed.keep(y, result)
        y._at = snapshot
