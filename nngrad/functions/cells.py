"""Variable's methods under nnabla's and NumPy's names; and immediate arithmetic of NdArrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..graph import NdArray, Variable
from ..graph.arguments import Axes
from ..graph.engine import CellOperators, Operators, provide
from ..graph.leaf import as_variable
from ..graph.signatures import explained
from ..graph.spec import Shape
from ..graph.variable import leaf_of
from . import array, comparison, indexing, movement, reduction
from .operators import operators

# `graph/engine.py` declares them with the same signatures and own docstrings, for editors and type checkers.


def _reduced(op: Callable[..., Any]) -> Callable[..., Variable]:
    def reduce(self: Variable, axis: Axes | None = None, keepdims: bool = False) -> Variable:
        result: Variable = op(self, axis=axis, keepdims=keepdims)
        return result

    return reduce


def _reshape(self: Variable, shape: Shape, unlink: bool = False) -> Variable:
    result: Variable = movement.reshape(self, shape=shape)
    if not unlink:
        return result
    cell = NdArray.of_spec(result.spec)
    cell.set(self.data.view.reshape(result.shape))
    leaf = leaf_of(cell, self.name)
    leaf.need_grad = self.need_grad
    return leaf


def _item(self: Variable) -> Any:
    if self.size != 1:
        raise ValueError(f"item: expected one element, got shape {self.shape}. Index the Variable: x[0].item()")
    return self.data.view.item()


def _filled(self: Variable, mask: Any, value: float) -> Variable:
    chosen = as_variable(mask, "mask", "bool_fill_")
    if chosen.dtype != bool:
        chosen = comparison.not_equal_scalar(chosen, 0.0)
    if chosen.shape != self.shape:
        chosen = movement.broadcast(chosen, shape=self.shape)
    result: Variable = indexing.where(chosen, array.constant(value, shape=self.shape, dtype=self.dtype), self)
    return result


def size_from_axis(self: Variable | NdArray, axis: int = -1) -> int:
    """The number of elements from axis `axis` on."""
    return math.prod(self.shape[max(axis, 0) :])


def _refuse_assignment(self: Variable, key: Any, value: Any) -> None:
    raise TypeError("a Variable does not support item assignment. Use F.where or F.scatter_nd to make a new one, or "
                    "x.d[...] = to write to its value")


def _as_method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function under the name of the method that it becomes, so that errors show that name."""
    function.__name__ = function.__qualname__ = name
    return explained(function, name)


_METHODS: dict[str, Callable[..., Any]] = {
    "astype": lambda self, dtype: array.cast(self, dtype),
    "bool_fill_": _filled,
    "item": _item,
    "masked_fill_": _filled,
    "max": _reduced(reduction.max),
    "mean": _reduced(reduction.mean),
    "min": _reduced(reduction.min),
    "prod": _reduced(reduction.prod),
    "reshape": _reshape,
    "size_from_axis": size_from_axis,
    "sum": _reduced(reduction.sum),
    "transpose": lambda self, axes=None: movement.transpose(self, axes),
}
provide(Operators, {
    "__setitem__": _refuse_assignment,
    "T": property(lambda self: movement.transpose(self)),
    **{name: _as_method(name, function) for name, function in _METHODS.items()},
})


def _eager_operator(name: str) -> Callable[..., Any]:
    """The operator of that name: a cell with the result, or a Variable where the other operand is one."""

    def operate(self: NdArray, *other: Any) -> Any:
        if other and isinstance(other[0], Variable):
            return NotImplemented  # the Variable's operator takes over
        operands = [leaf_of(x) if isinstance(x, NdArray) else x for x in other]
        result = operators[name](leaf_of(self), *operands)
        return result.data if isinstance(result, Variable) else result

    return operate


def _in_place_operator(name: str) -> Callable[..., Any]:
    """The operator of that name, whose result is written into the left operand."""
    compute = _eager_operator(name)

    def operate(self: NdArray, other: Any) -> Any:
        result = compute(self, other.data if isinstance(other, Variable) else other)
        if result is not NotImplemented:
            self.set(result)
            return self
        return result

    return operate


_BINARY = ("add", "sub", "mul", "truediv", "pow", "matmul")

provide(CellOperators, {
    **{f"__{name}__": _eager_operator(f"__{name}__") for name in _BINARY},
    **{f"__r{name}__": _eager_operator(f"__r{name}__") for name in _BINARY},
    **{f"__i{name}__": _in_place_operator(f"__{name}__") for name in _BINARY if name != "matmul"},
    "__neg__": _eager_operator("__neg__"),
    "__pos__": lambda self: self,
    "size_from_axis": size_from_axis,
})
