"""Comparisons and logical primitives.

A bool in the jaxpr is a bool Variable in the graph, or one of the numbers 0 and 1, as nngrad's comparisons return.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import functions as F
from ...graph import Variable
from ..values import KnownArray
from .registry import JaxprEquation, opens, require, scalar, variable


def as_zero_or_one(x: Variable) -> Variable:
    """Booleans as the numbers 0 and 1."""
    return F.cast(x, dtype=np.float32) if x.dtype == bool else x


def _opens_comparison(
    name: str,
    of_two: Callable[..., Variable],
    with_number: Callable[..., Variable],
    mirrored: Callable[..., Variable],
) -> None:
    @opens(name, takes_known=True)
    def rule(equation: JaxprEquation, x: Any, y: Any) -> Variable:
        if scalar(y) is not None and tuple(x.shape) == equation.shape:
            return with_number(as_zero_or_one(variable(x)), val=scalar(y))
        if scalar(x) is not None and tuple(y.shape) == equation.shape:
            return mirrored(as_zero_or_one(variable(y)), val=scalar(x))
        return of_two(as_zero_or_one(variable(x)), as_zero_or_one(variable(y)))


_COMPARISONS: tuple[tuple[str, Any, Any, Any], ...] = (
    ("eq", F.equal, F.equal_scalar, F.equal_scalar),
    ("ne", F.not_equal, F.not_equal_scalar, F.not_equal_scalar),
    ("lt", F.less, F.less_scalar, F.greater_scalar),
    ("le", F.less_equal, F.less_equal_scalar, F.greater_equal_scalar),
    ("gt", F.greater, F.greater_scalar, F.less_scalar),
    ("ge", F.greater_equal, F.greater_equal_scalar, F.less_equal_scalar),
)
for _name, *_functions in _COMPARISONS:
    _opens_comparison(_name, *_functions)


def _opens_connective(name: str, function: Callable[..., Variable]) -> None:
    @opens(name)
    def rule(equation: JaxprEquation, *xs: Variable) -> Variable:
        if equation.dtype == bool:
            return function(*xs)
        return F.bits_of(xs[0], operation="not") if name == "not" else F.bitwise(xs[0], xs[1], operation=name)


_CONNECTIVES: dict[str, Any] = {
    "and": F.logical_and, "or": F.logical_or, "xor": F.logical_xor, "not": F.logical_not,
}  # fmt: skip
for _name, _function in _CONNECTIVES.items():
    _opens_connective(_name, _function)


@opens("reduce_and", "reduce_or")
def _reduce_truth(equation: JaxprEquation, x: Variable) -> Variable:
    axes = tuple([int(a) for a in equation.params["axes"]])
    if not axes:
        return x
    require(equation.dtype == bool, "on the bits of integers")
    return (F.amin if equation.name == "reduce_and" else F.amax)(as_zero_or_one(x), axis=axes)


@opens("is_finite")
def _is_finite(equation: JaxprEquation, x: Variable) -> Variable:
    return F.less_scalar(F.abs(x), val=float("inf"))  # NaN is not less


@opens("select_n", takes_known=True)
def _select_n(equation: JaxprEquation, which: Any, *cases: Any) -> Any:
    if isinstance(which, KnownArray) and which.number is not None:
        return cases[int(which.number)]
    if all([case is cases[0] for case in cases]):
        return cases[0]
    chosen = variable(cases[-1])
    which = variable(which)
    if len(cases) == 2:
        return _where(which, chosen, variable(cases[0]), equation)
    for i in range(len(cases) - 2, -1, -1):
        chosen = _where(F.equal_scalar(which, val=float(i)), variable(cases[i]), chosen, equation)
    return chosen


def _where(condition: Variable, yes: Variable, no: Variable, equation: JaxprEquation) -> Variable:
    if equation.dtype == bool and yes.dtype != no.dtype:
        yes, no = F.cast(yes, dtype=bool), F.cast(no, dtype=bool)
    if condition.dtype not in (bool, equation.dtype) and equation.is_floating:
        condition = F.cast(condition, dtype=bool)  # which has no part in the dtype of the result
    return F.where(condition, yes, no)
