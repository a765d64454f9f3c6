"""Python's operators on Variables."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ..graph import Op, Variable, apply, as_variable
from ..graph.arguments import as_static_float
from ..graph.engine import Operators, engine, provide
from ..graph.leaf import as_operands
from . import arithmetic as A
from . import array, comparison, elementwise, indexing, linear, numbers, slicing

_NUMBERS = (int, float, np.integer, np.floating)
_EXACT = 1 << 53
"""Up to here every whole number is a float."""


def _binary(
    symbol: str, both: Op, with_number: Callable[[Variable, float], Variable], reflected: bool = False
) -> Callable[..., Any]:
    """`x symbol other`, or `other symbol x` if `reflected`, for a Variable, an array, a list or a number `other`."""

    def operate(x: Variable, other: Any) -> Any:
        if other.__class__ is Variable:
            return apply(both, (other, x) if reflected else (x, other))
        kind = other.__class__
        if (kind is float or kind is int) and other and -_EXACT <= other <= _EXACT and x.spec.differentiable:
            return with_number(x, float(other))  # the most common case, without checks
        if isinstance(other, _NUMBERS):
            if x.spec.differentiable:
                return with_number(x, as_static_float(other))
            if isinstance(other, float | np.floating):
                return with_number(array.cast(x, np.float32), as_static_float(other))
            if abs(int(other)) <= _EXACT:
                return with_number(x, float(other))
            other = _as_integer(int(other), x)
        if other is None or isinstance(other, str | bytes | dict | set):
            return NotImplemented
        other = as_variable(other, "other", symbol, x.dtype if x.spec.differentiable else None)
        return apply(both, (other, x) if reflected else (x, other))

    return operate


def _as_integer(number: int, x: Variable) -> np.ndarray[Any, Any]:
    """A large number in the dtype of the integers `x`."""
    try:
        return np.array(number, x.dtype)
    except OverflowError:
        raise ValueError(f"{number} is out of range for the dtype of the Variable, {x.dtype.name}") from None


def _scalar(op: Op) -> Callable[[Variable, float], Variable]:
    return lambda x, val: apply(op, (x,), (val,))


def _divide_by_number(x: Variable, val: float) -> Variable:
    if not x.spec.differentiable:
        x = array.cast(x, np.float32)
    result: Variable = (
        apply(A.mul_scalar, (x,), (as_static_float(1.0 / val),))
        if val
        else apply(A.div2, (x, as_variable(val, floating=x.dtype)))
    )
    return result


_UFUNCS = {
    np.add: ("__add__", "__radd__"),
    np.subtract: ("__sub__", "__rsub__"),
    np.multiply: ("__mul__", "__rmul__"),
    np.true_divide: ("__truediv__", "__rtruediv__"),
    np.power: ("__pow__", "__rpow__"),
    np.remainder: ("__mod__", "__rmod__"),
    np.matmul: ("__matmul__", "__rmatmul__"),
    np.equal: ("__eq__", "__eq__"),
    np.not_equal: ("__ne__", "__ne__"),
    np.less: ("__lt__", "__gt__"),
    np.less_equal: ("__le__", "__ge__"),
    np.greater: ("__gt__", "__lt__"),
    np.greater_equal: ("__ge__", "__le__"),
}
"""For each ufunc that NumPy calls for an operator, the methods of a Variable on its left and on its right."""


def _from_numpy(self: Variable, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """Called by NumPy for `array * variable` and for its ufuncs; Variables only support the operators."""
    if ufunc in _UFUNCS and method == "__call__" and not options:
        left, right = inputs
        name, reflected = _UFUNCS[ufunc]
        return getattr(left, name)(right) if isinstance(left, Variable) else getattr(right, reflected)(left)
    if "out" in options:
        raise TypeError(f"np.{ufunc.__name__}: cannot write a Variable into an array. Use `a = a + x`, not `a += x`")
    return _on_values(getattr(ufunc, method), f"numpy.{ufunc.__name__}", inputs, options)


_WITHOUT_GRADIENT = (
    np.allclose, np.array2string, np.array_equal, np.array_equiv, np.array_repr, np.array_str, np.save, np.savetxt,
    np.savez, np.savez_compressed,
)  # fmt: skip
"""Functions of NumPy that compare, print or store, so that no gradient is lost."""


def _numpy_function(self: Variable, function: Any, types: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Called by NumPy for its other functions."""
    if function in (np.shape, np.ndim, np.size):
        return function._implementation(*args, **options)
    return _on_values(function, f"{function.__module__}.{function.__name__}", args, options)


def _on_values(function: Any, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A function of NumPy of the values of Variables, where that loses no gradient."""
    if function not in _WITHOUT_GRADIENT and not _within_matplotlib():
        raise TypeError(
            f"{name.replace('numpy', 'np', 1)}: a Variable is not an array. Use "
            f"{engine.counterpart(name) or 'a function of F'}, or the value, x.d, which has no gradient"
        )
    return function(*map(_value, args), **{n: _value(x) for n, x in options.items()})


def _value(x: Any) -> Any:
    """An argument of a function of NumPy, with the values of Variables."""
    return x.to_numpy() if isinstance(x, Variable) else type(x)(map(_value, x)) if type(x) in (list, tuple) else x


def _within_matplotlib() -> bool:
    """True if matplotlib calls NumPy. It draws values and differentiates nothing."""
    frame = sys._getframe(1)
    while (name := frame.f_globals.get("__name__", "")).startswith(("numpy", __name__)) and frame.f_back:
        frame = frame.f_back
    return str(name).startswith(("matplotlib.", "mpl_toolkits."))


def _modulo(x: Any, other: Any) -> Variable:
    """`x % other`, which has the sign of `other`, as in Python and NumPy."""
    x, other = as_operands((x, other), ("x", "other"), "%")
    y = numbers.mod2(x, other)
    is_other = comparison.logical_and(
        comparison.not_equal_scalar(y, 0.0),
        comparison.not_equal(comparison.less_scalar(y, 0.0), comparison.less_scalar(other, 0.0)),
    )
    result: Variable = indexing.where(is_other, y + other, y)
    return result


def _no_floor_division(x: Variable, other: Any) -> Any:
    raise TypeError("//: a Variable has no floor division, whose derivative is 0. Use F.floor(x / y), or x % y")


operators: dict[str, Callable[..., Any]] = {
    "__add__": _binary("+", A.add2, _scalar(A.add_scalar)),
    "__radd__": _binary("+", A.add2, _scalar(A.add_scalar), reflected=True),
    "__sub__": _binary("-", A.sub2, lambda x, val: apply(A.add_scalar, (x,), (as_static_float(-val),))),
    "__rsub__": _binary("-", A.sub2, _scalar(A.r_sub_scalar), reflected=True),
    "__mul__": _binary("*", A.mul2, _scalar(A.mul_scalar)),
    "__rmul__": _binary("*", A.mul2, _scalar(A.mul_scalar), reflected=True),
    "__truediv__": _binary("/", A.div2, _divide_by_number),
    "__rtruediv__": _binary("/", A.div2, _scalar(A.r_div_scalar), reflected=True),
    "__pow__": _binary("**", A.pow2, _scalar(A.pow_scalar)),
    "__rpow__": _binary("**", A.pow2, _scalar(A.r_pow_scalar), reflected=True),
    "__mod__": _modulo,
    "__rmod__": lambda x, other: _modulo(other, x),
    "__floordiv__": _no_floor_division,
    "__rfloordiv__": _no_floor_division,
    "__matmul__": lambda x, other: linear.matmul(x, other),
    "__rmatmul__": lambda x, other: linear.matmul(other, x),
    "__eq__": _binary("==", comparison.equal, _scalar(comparison.equal_scalar)),
    "__ne__": _binary("!=", comparison.not_equal, _scalar(comparison.not_equal_scalar)),
    "__lt__": _binary("<", comparison.less, _scalar(comparison.less_scalar)),
    "__le__": _binary("<=", comparison.less_equal, _scalar(comparison.less_equal_scalar)),
    "__gt__": _binary(">", comparison.greater, _scalar(comparison.greater_scalar)),
    "__ge__": _binary(">=", comparison.greater_equal, _scalar(comparison.greater_equal_scalar)),
    "__neg__": lambda x: apply(A.mul_scalar, (x,), (-1.0,)),
    "__pos__": lambda x: x,
    "__abs__": lambda x: elementwise.abs(x),
    "__getitem__": slicing.getitem,
    "__array_function__": _numpy_function,
    "__array_ufunc__": _from_numpy,
}
"""The operators of Variable, by the names of Python's special methods."""
provide(Operators, operators)
