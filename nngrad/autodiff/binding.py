"""What is in a gradient's reach, and what is out of it; and the leaves that an input stands for."""

from __future__ import annotations

from collections.abc import Sequence

import nngrad.functions as F
from backward_registry import registry

from ..graph import Variable, functions_of, leaves_of
from .request import Request


def reached_from(outputs: Sequence[Variable], stop_ids: frozenset[int]) -> set[int]:
    """The ids of the Variables that gradients which start at `outputs` can reach."""

    def passes(y: Variable) -> bool:
        rule = None if y.parent is None else registry.find(y.parent.op)
        differentiable = rule is None or rule.kind != "non-differentiable"
        return y._need_grad is not False and id(y) not in stop_ids and y.spec.differentiable and differentiable

    inputs = [x for f in functions_of(outputs, through=passes) for x in f.inputs if x.spec.differentiable]
    return {id(x) for x in (*outputs, *inputs)}


def unreachable_inputs(request: Request, owners: Sequence[Sequence[Variable]]) -> list[int]:
    """The positions of the inputs that no gradient can reach and that have none already."""
    reached = reached_from(request.outputs, frozenset([id(x) for x in request.stop_gradients]))
    given = request.initial or [None] * len(owners)
    lost = [
        i
        for i, (own, gx) in enumerate(zip(owners, given, strict=True))
        if gx is None and not any(id(x) in reached for x in own)
    ]
    if lost and request.unreachable == "raise":
        raise ValueError(f"inputs{lost}: no gradient of the outputs can reach them")
    return lost


def own_leaves(outputs: list[Variable], inputs: list[Variable]) -> list[list[Variable]]:
    """Returns what each input stands for: itself, or where it is a leaf that is not in the graph, all of the graph's
    own that share its data."""
    loose = {id(x) for x in inputs if x.parent is None}
    leaves = leaves_of(outputs) if loose else []
    return owning(inputs, loose - {id(x) for x in leaves}, leaves)


def owning(inputs: Sequence[Variable], loose: set[int], leaves: list[Variable]) -> list[list[Variable]]:
    """Returns for each input those of `leaves` that share its data, where it is among the `loose` and there are some;
    else just itself."""
    by_cell: dict[int, list[Variable]] = {}
    for x in leaves if loose else ():
        if x._data is not None:
            by_cell.setdefault(id(x._data), []).append(x)
    return [by_cell.get(id(x._data), [x]) if id(x) in loose else [x] for x in inputs]


def added_up(gradients: list[Variable], owners: list[list[Variable]]) -> list[Variable]:
    """Returns for each list in `owners` the sum of the gradients of what is in it."""
    rest = iter(gradients)
    parts = [[next(rest) for _ in own] for own in owners]
    return [gs[0] if len(gs) == 1 else F.add_n(*gs) for gs in parts]
