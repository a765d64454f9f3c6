"""Arithmetic of cells (`NdArray`), which is computed at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..graph import NdArray, Variable
from ..graph.engine import CellOperators, provide
from ..graph.variable import leaf_of
from .methods import size_from_axis
from .operators import operators


def _at_once(name: str) -> Callable[..., Any]:
    """The operator of that name: a cell with the result, or a Variable where the other operand is one."""

    def operate(self: NdArray, *other: Any) -> Any:
        if other and isinstance(other[0], Variable):
            return NotImplemented  # which goes to the Variable
        given = [leaf_of(x) if isinstance(x, NdArray) else x for x in other]
        result = operators[name](leaf_of(self), *given)
        return result.data if isinstance(result, Variable) else result

    return operate


def _into(name: str) -> Callable[..., Any]:
    """The operator of that name, whose result is written into the left operand."""
    compute = _at_once(name)

    def operate(self: NdArray, other: Any) -> Any:
        result = compute(self, other.data if isinstance(other, Variable) else other)
        if result is not NotImplemented:
            self.set(result)
            return self
        return result

    return operate


_BINARY = ("add", "sub", "mul", "truediv", "pow", "matmul")

provide(CellOperators, {
    **{f"__{name}__": _at_once(f"__{name}__") for name in _BINARY},
    **{f"__r{name}__": _at_once(f"__r{name}__") for name in _BINARY},
    **{f"__i{name}__": _into(f"__{name}__") for name in _BINARY if name != "matmul"},
    "__neg__": _at_once("__neg__"),
    "__pos__": lambda self: self,
    "size_from_axis": size_from_axis,
})
