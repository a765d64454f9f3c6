"""What `grad` can be asked for besides gradients: another sum, what is out of reach, gradients kept on Variables."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from backward_registry import registry

from ..graph import NdArray, Variable, engine, functions_of
from ..graph.value import Deferred

UNREACHABLE = ("zero", "none", "raise")
Aggregate = Callable[[list[Variable]], Variable]


def checked_aggregate(aggregate: Aggregate) -> Aggregate:
    """`aggregate`, with a look at what it returns."""
    if not callable(aggregate):
        raise TypeError(f"aggregate: expected a function of a list of Variables, got {aggregate!r}")

    def checked(gradients: list[Variable]) -> Variable:
        result = aggregate(gradients)
        if not isinstance(result, Variable):
            raise TypeError(f"aggregate: must return a Variable, got {type(result).__name__}")
        if result.spec is not gradients[0].spec:
            raise ValueError(f"aggregate: returned {result.spec} for gradients of {gradients[0].spec}")
        return result

    return checked


def reached_from(outputs: Sequence[Variable], ends: frozenset[int]) -> set[int]:
    """The ids of the Variables that gradients which start at `outputs` can reach."""

    def passes(y: Variable) -> bool:
        rule = None if y.parent is None else registry.find(y.parent.op)
        differentiable = rule is None or rule.kind != "non-differentiable"
        return y._need_grad is not False and id(y) not in ends and y.spec.differentiable and differentiable

    inputs = [x for f in functions_of(outputs, through=passes) for x in f.inputs if x.spec.differentiable]
    return {id(x) for x in (*outputs, *inputs)}


def unreachable_inputs(
    outputs: Sequence[Variable], owners: Sequence[Sequence[Variable]], given: Sequence[Any], ends: frozenset[int]
) -> list[int]:
    """The positions of the inputs that no gradient can reach and that have none already."""
    reached = reached_from(outputs, ends)
    return [
        i for i, own in enumerate(owners) if given[i] is None and not any(id(x) in reached for x in own)
    ]


def keep_gradient(x: Variable, gx: Variable) -> None:
    """Let `x.grad_var` be `gx`, and `x.g` its value, computed when it is read."""
    x.grad_var = gx
    x.grad.defer(_ValueOf(gx, x.grad).value())


class _ValueOf:
    """Computes a Variable's value for a cell."""

    __slots__ = ("_cell", "_value", "_variable")

    def __init__(self, variable: Variable, cell: NdArray) -> None:
        self._variable = variable
        self._cell = weakref.ref(cell)  # which holds this

    def value(self) -> Deferred:
        """What the cell is to hold."""
        value = Deferred(self)
        self._value = weakref.ref(value)
        return value

    def run(self) -> None:
        """Compute it."""
        variable, value = self._variable, self._value()
        if variable.cell is self._cell() or not variable.is_computed:
            engine.evaluate(variable)
        if value is not None:
            value.fill(variable.cell.raw())


def check_choice(value: Any, name: str, choices: tuple[str, ...]) -> None:
    """Raise a ValueError unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name}: expected {' or '.join(map(repr, choices))}, got {value!r}")
