"""The reach of gradients, the leaves that an input stands for, what results of `grad` are derivatives of, and the
record of leaves that backwards have reached, with which solvers detect untrained ones."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import nngrad.functions as F
from backward_registry import registry

from ..graph import Function, Variable, functions_of, leaves_of
from ..graph.closing import Closing
from ..graph.value import Value
from .request import Derivation, Request, ResultDerivation, derivation_of, derivations_of, derived_in


def reached_from(outputs: Sequence[Variable], stop_ids: frozenset[int]) -> set[int]:
    """The ids of the Variables that gradients starting at `outputs` can reach."""

    def passes(y: Variable) -> bool:
        rule = None if y.parent is None else registry.find(y.parent.op)
        differentiable = rule is None or rule.kind != "non-differentiable"
        return y._need_grad is not False and id(y) not in stop_ids and y.spec.differentiable and differentiable

    inputs = [x for f in functions_of(outputs, through=passes) for x in f.inputs if x.spec.differentiable]
    return {id(x) for x in (*outputs, *inputs)}


def unreachable_inputs(request: Request, owners: Sequence[Sequence[Variable]]) -> list[int]:
    """The indices of the inputs that no gradient can reach, and that have no initial gradient."""
    reached = reached_from(request.outputs, frozenset([id(x) for x in request.stop_gradients]))
    given = request.initial or [None] * len(owners)
    lost = [
        i
        for i, (own, gx) in enumerate(zip(owners, given, strict=True))
        if gx is None and not any(id(x) in reached for x in own)
    ]
    if lost and request.unreachable == "raise":
        raise ValueError(f"inputs{lost}: the outputs do not depend on them, or gradients cannot reach them")
    return lost


def own_leaves(outputs: list[Variable], inputs: list[Variable]) -> list[list[Variable]]:
    """The Variables that each input stands for: itself, or for a leaf outside the graph, all leaves in the graph that
    share its data."""
    loose = {id(x) for x in inputs if x.parent is None}
    leaves = leaves_of(outputs) if loose else []
    return owning(inputs, loose - {id(x) for x in leaves}, leaves)


def owning(inputs: Sequence[Variable], loose: set[int], leaves: list[Variable]) -> list[list[Variable]]:
    """For each input among the `loose`, those of `leaves` that share its data, if any; else just the input itself."""
    by_cell: dict[int, list[Variable]] = {}
    for x in leaves if loose else ():
        if x._data is not None:
            by_cell.setdefault(id(x._data), []).append(x)
    return [by_cell.get(id(x._data), [x]) if id(x) in loose else [x] for x in inputs]


def added_up(gradients: list[Variable], owners: list[list[Variable]]) -> list[Variable]:
    """For each list in `owners`, the sum of the gradients of its members."""
    rest = iter(gradients)
    parts = [[next(rest) for _ in own] for own in owners]
    return [gs[0] if len(gs) == 1 else F.add_n(*gs) for gs in parts]


def close_with_derivations(
    closing: Closing,
    functions: Sequence[Function],
    about: Iterable[Variable | None],
    referred_to: Callable[[Derivation], Iterable[Iterable[Variable | None]]],
) -> dict[Derivation, int]:
    """Close functions, and what the results of `grad` among them are derivatives of.

    Args:
        closing: The closing to extend.
        functions: The functions, in topological order.
        about: Variables whose dependencies are closed as well.
        referred_to: Returns the Variables of a derivation to treat in the same way.

    Returns:
        The derivations, numbered.
    """
    derivations = derivations_of(closing.derived)
    waiting, seen = [*about], len(closing.derived)
    while functions or waiting:
        closing.write(functions)
        new: list[ResultDerivation] = [gx._derived for gx in closing.derived[seen:]]
        seen = len(closing.derived)
        for derived_by in new:
            derivation = derived_by.derivation
            waiting += (derived_by.laplacian or ())[:2]
            if derivation is not None and derivation not in derivations:
                derivations[derivation] = len(derivations)
                waiting += [x for each in referred_to(derivation) for x in each]
        functions = functions_of([x for x in waiting if x is not None], through=lambda x: not closing.has(x))
        waiting = []
    return derivations


# ---------------------------------------------------------------- leaves that nobody trains

watching: set[weakref.ref[Any]] = set()
"""Weak references to the objects that want reached leaves recorded."""

_reached: deque[list[tuple[weakref.ref[Variable], weakref.ref[Value]]]] = deque(maxlen=64)
"""For each backward, the leaves that its gradients reached, with their Values at that time."""


def watch_leaves(by: Any) -> None:
    """Record the leaves that backwards reach, until `unwatch_leaves(by)`."""
    watching.add(weakref.ref(by, watching.discard))


def unwatch_leaves(by: Any) -> bool:
    """End the recording for `by`; returns whether there was one."""
    found = weakref.ref(by) in watching
    watching.discard(weakref.ref(by))
    return found


def watched_leaves(
    outputs: list[Variable], leaves: Iterable[Variable], functions: Sequence[Function]
) -> list[Variable]:
    """The leaves that gradients of the outputs reach, except inputs of a `grad` whose result is among the functions:
    such a gradient is what the program computes."""
    reached = reached_from(outputs, frozenset())
    asked = {id(known.input) for y in derived_in(functions) if (known := derivation_of(y)) is not None}
    return [x for x in leaves if id(x) in reached and id(x) not in asked]


def record_reached(leaves: Iterable[Variable]) -> None:
    """Record which leaves the gradients of one backward reach."""
    _reached.append([(weakref.ref(x), weakref.ref(x.cell._value)) for x in leaves])


def reached_with(own: Iterable[Variable]) -> list[Variable]:
    """The leaves reached together with some of `own`, each reported only once.

    Leaves written to since then are data, and gradients that were read or are gone have already been used.
    """
    cells = {id(p.cell) for p in own}
    noted = [(group, [(x, value()) for ref, value in group if (x := ref()) is not None]) for group in _reached]
    written = {id(x) for _, group in noted for x, value in group if x.cell._value is not value}
    with_own = [any([id(x.cell) in cells for x, _ in group]) for _, group in noted]
    _reached.clear()
    if watching:
        _reached.extend([group for (group, _), is_own in zip(noted, with_own, strict=True) if not is_own])
    return [
        x
        for (_, group), is_own in zip(noted, with_own, strict=True)
        if is_own
        for x, _ in group
        if id(x) not in written and not (x.grad.is_empty or x.grad._value.has_view)
    ]
