"""Elementwise primitives, comparisons and logic.

A bool in the jaxpr is a bool Variable in the graph, or one of the numbers 0 and 1, as nngrad's comparisons return.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from backward_registry.incomplete import gamma_by_shape

from ... import functions as F
from ...extend import Variable
from ...functions.array import in_dtype
from ...functions.axes import axes_of
from ..values import KnownArray
from .registry import POINTWISE, JaxprEquation, opens, opens_each, require, require_floating, scalar, variable


def _opens_unary(name: str, function: Callable[[Variable], Variable]) -> None:
    @opens(name)
    def rule(equation: JaxprEquation, x: Variable) -> Variable:
        require_floating(equation)
        accuracy = equation.params.get("accuracy")
        require(accuracy in (None, lax.AccuracyMode.DEFAULT), f"it asks for the accuracy {accuracy}, which F has not")
        return function(x)


_UNARY: dict[str, Any] = {
    "acos": F.acos, "acosh": F.acosh, "asin": F.asin, "asinh": F.asinh, "atan": F.atan, "atanh": F.atanh,
    "bessel_i0e": F.i0e, "bessel_i1e": F.i1e,
    "cbrt": F.cbrt, "ceil": functools.partial(F.rounded, to="up"), "floor": functools.partial(F.rounded, to="down"),
    "cos": F.cos, "cosh": F.cosh, "digamma": F.digamma, "erf": F.erf, "erfc": F.erfc, "erf_inv": F.erfinv, "exp": F.exp,
    "expm1": F.expm1, "lgamma": F.lgamma, "log": F.log, "log1p": F.log1p, "logistic": F.sigmoid, "rsqrt": F.rsqrt,
    "sin": F.sin, "sign": F.signum, "sinh": F.sinh, "sqrt": F.sqrt, "tan": F.tan, "tanh": F.tanh,
    "exp2": functools.partial(F.r_pow_scalar, val=2.0),
}  # fmt: skip
for _name, _function in _UNARY.items():
    _opens_unary(_name, _function)


opens_each({
    "abs": F.abs, "atan2": F.atan2, "igamma_grad_a": gamma_by_shape, "one_minus_square": F.one_minus_square,
    "regularized_incomplete_beta": F.betainc, "square": F.square, "stop_gradient": F.unlink,
    "clz": functools.partial(F.bits_of, operation="leading zeros"),
    "igamma": functools.partial(F.incomplete_gamma, upper=False),
    "igammac": functools.partial(F.incomplete_gamma, upper=True),
    "population_count": functools.partial(F.bits_of, operation="count"),
    "rem": functools.partial(F.mod2, fmod=True),
    "shift_left": functools.partial(F.bitwise, operation="left"),
    "shift_right_arithmetic": functools.partial(F.bitwise, operation="right with sign"),
    "shift_right_logical": functools.partial(F.bitwise, operation="right"),
})


@opens("log2")
def _log2(equation: JaxprEquation, x: Variable) -> Variable:
    """By the natural logarithm, as in JAX."""
    return F.mul_scalar(F.log(x), val=1 / math.log(2))


@opens("polynomial", takes_known=True)
def _polynomial(equation: JaxprEquation, x: Any, *coefficients: Any) -> Variable:
    """By Horner's rule; the leading coefficient comes first."""
    *rest, y = coefficients
    for c in reversed(rest):
        y = _add(equation, _mul(equation, y, x), c)
    return variable(y)


@opens("round")
def _round(equation: JaxprEquation, x: Variable) -> Variable:
    even = int(equation.params["rounding_method"]) == int(lax.RoundingMethod.TO_NEAREST_EVEN)
    return F.rounded(x, to="nearest even" if even else "nearest")


@opens("neg")
def _neg(equation: JaxprEquation, x: Variable) -> Variable:
    require(x.dtype.kind != "u", "its inputs are unsigned integers")
    return F.mul_scalar(x, val=-1.0)


def _with_number(equation: JaxprEquation, x: Any, y: Any) -> tuple[Variable | None, float, bool]:
    """The array operand, which has the result's shape; the scalar operand; and whether the scalar came first."""
    for value, other, first in ((x, y, False), (y, x, True)):
        number = scalar(other)
        if number is not None and tuple(value.shape) == equation.shape:
            return variable(value), number, first
    return None, 0.0, False


@opens("add", "add_any", takes_known=True)
def _add(equation: JaxprEquation, x: Any, y: Any) -> Variable:
    value, number, _ = _with_number(equation, x, y)
    return F.add2(variable(x), variable(y)) if value is None else F.add_scalar(value, val=number)


@opens("sub", takes_known=True)
def _sub(equation: JaxprEquation, x: Any, y: Any) -> Variable:
    value, number, first = _with_number(equation, x, y)
    if value is None:
        return F.sub2(variable(x), variable(y))
    require(first is False or value.dtype.kind != "u", "its inputs are unsigned integers")
    return F.r_sub_scalar(value, val=number) if first else F.add_scalar(value, val=-number)


@opens("mul", takes_known=True)
def _mul(equation: JaxprEquation, x: Any, y: Any) -> Variable:
    require(equation.params.get("out_dtype") is None, "its result has another dtype")
    value, number, _ = _with_number(equation, x, y)
    if value is None:
        x, y = variable(x), variable(y)
        weighted = [product for product in (_weighted_exp(x, y), _weighted_exp(y, x)) if product is not None]
        return F.square(x) if x is y else weighted[0] if weighted else F.mul2(x, y)
    return value if number == 1 else F.mul_scalar(value, val=number)


def _weighted_exp(e: Variable, w: Variable) -> Variable | None:
    """`e * w` if e is `exp(where(w != 0, a, -inf) - c)`, as in `jax.scipy.special.logsumexp` with weights: the same
    values, but where w is 0 the derivative in w is `exp(a - c)`, which the mask hides. None otherwise."""
    if e.parent is None or e.parent.op is not F.exp:
        return None
    (masked,) = e.parent.inputs
    shifted = masked.parent if masked.parent is not None and masked.parent.op is F.sub2 else None
    selection = (masked if shifted is None else shifted.inputs[0]).parent
    if selection is None or selection.op is not F.where:
        return None
    holds, a, other = selection.inputs
    hidden = other.parent is not None and other.parent.op is F.constant and other.parent.arguments[0] == -math.inf
    if not hidden or not _is_nonzero(holds, w):
        return None
    exponent = a if shifted is None else F.sub2(a, shifted.inputs[1])
    largest = math.log(jnp.finfo(exponent.dtype).max) - 1  # else 0 would be multiplied by infinity, or by NaN
    limit = F.constant(largest, exponent.shape, exponent.dtype)
    limited = F.where(F.greater_equal_scalar(exponent, largest), limit, other)
    return F.mul2(F.exp(F.where(holds, exponent, F.where(F.less_scalar(exponent, largest), exponent, limited))), w)


def _is_nonzero(condition: Variable, w: Variable) -> bool:
    """True if a condition is `w != 0`, each perhaps broadcast along some axes."""
    pair = [_before_broadcast(x) for x in (condition, w)]
    reshaped = [x.parent for x in pair if x.parent is not None and x.parent.op is F.reshape]
    if len(reshaped) == 2 and pair[0].shape == pair[1].shape:
        pair = [f.inputs[0] for f in reshaped]
    condition, w = pair
    f = condition.parent
    return f is not None and f.op is F.not_equal_scalar and f.arguments == (0.0,) and f.inputs[0] is w


@opens("div", takes_known=True)
def _div(equation: JaxprEquation, x: Any, y: Any) -> Variable:
    if not equation.is_floating:
        return F.integer_quotient(variable(x), variable(y))
    value, number, first = _with_number(equation, x, y)
    if value is None:
        x, y = variable(x), variable(y)
        whole = _softmax(x, y)
        return F.div2(x, y) if whole is None else whole
    if first:
        return F.r_div_scalar(value, val=number)
    return F.mul_scalar(value, val=1 / number) if number else F.div2(value, variable(y))


def _softmax(e: Variable, total: Variable) -> Variable | None:
    """`e / total` if e is `exp(a)` and the other its sum over an axis, as in `jax.nn.softmax`: in the tails derivatives
    of the quotient cancel, and those of `softmax` do not. None otherwise."""
    if e.parent is None or e.parent.op is not F.exp:
        return None
    total = _before_broadcast(total)
    f = total.parent
    if f is not None and f.op is F.reshape:
        f = f.inputs[0].parent
    if f is None or f.op is not F.sum or f.inputs[0] is not e:
        return None
    axes = axes_of(f.arguments[0], e.ndim)
    if len(axes) > 1 or total.shape != tuple([1 if i in axes else n for i, n in enumerate(e.shape)]):
        return None
    (a,) = e.parent.inputs
    if a.parent is not None and a.parent.op is F.sub2 and a.parent.inputs[0].shape == a.shape:
        shift = _before_broadcast(a.parent.inputs[1])
        if shift.ndim == a.ndim and shift.shape[axes[0]] == 1:  # without influence, as the maximum
            a = a.parent.inputs[0]
    return F.softmax(a, axis=axes[0])


def _before_broadcast(x: Variable) -> Variable:
    """What `x` repeats along axes of size 1, else `x`."""
    while x.parent is not None and x.parent.op in (F.broadcast, F.unlink) and x.parent.inputs[0].ndim == x.ndim:
        (x,) = x.parent.inputs
    return x


@opens("max", "min", takes_known=True)
def _extremum(equation: JaxprEquation, x: Any, y: Any) -> Variable:
    largest = equation.name == "max"
    if equation.dtype == bool:
        return (F.logical_or if largest else F.logical_and)(variable(x), variable(y))
    value, number, _ = _with_number(equation, x, y)
    if value is None:
        return (F.maximum2 if largest else F.minimum2)(variable(x), variable(y))
    if number == (-_INFINITE if largest else _INFINITE):
        return value
    return (F.maximum_scalar if largest else F.minimum_scalar)(value, val=number)


_INFINITE = float("inf")


@opens("pow", takes_known=True)
def _pow(equation: JaxprEquation, x: Any, y: Any) -> Variable:
    require_floating(equation)
    value, number, first = _with_number(equation, x, y)
    if value is not None:
        return F.r_pow_scalar(value, val=number) if first else F.pow_scalar(value, val=number)
    x, y = variable(x), variable(y)
    return F.pow2(x, in_dtype(y, x.dtype))


@opens("integer_pow")
def _integer_pow(equation: JaxprEquation, x: Variable) -> Variable:
    exponent = int(equation.params["y"])
    require(exponent >= 0 or equation.is_floating, f"its result is {equation.dtype}")
    return F.square(x) if exponent == 2 else F.pow_scalar(x, val=float(exponent))


@opens("zeta", takes_known=True)
def _zeta(equation: JaxprEquation, x: Any, q: Any) -> Variable:
    exponent = scalar(x)
    require(exponent is not None and exponent > 1, "the exponent is unknown or not above 1")
    return F.zeta(exponent, variable(q))  # type: ignore[arg-type]


@opens("hurwitz_zeta")
def _hurwitz_zeta(equation: JaxprEquation, q: Variable) -> Variable:
    return F.hurwitz_zeta(q, x=equation.params["x"])


@opens("polygamma", takes_known=True)
def _polygamma(equation: JaxprEquation, n: Any, x: Any) -> Variable:
    order = scalar(n)
    require(order is not None and order >= 0 and order == int(order), "the order is unknown")
    return F.polygamma(int(order or 0), variable(x))


@opens("clamp", takes_known=True)
def _clamp(equation: JaxprEquation, low: Any, x: Any, high: Any) -> Variable:
    y = variable(x)
    for bound, by_number, by_array in ((low, F.maximum_scalar, F.maximum2), (high, F.minimum_scalar, F.minimum2)):
        number = scalar(bound)
        y = by_array(y, variable(bound)) if number is None else by_number(y, val=number)
    return y


@opens("convert_element_type")
def _convert_element_type(equation: JaxprEquation, x: Variable) -> Variable:
    if equation.dtype == bool:
        return F.not_equal_scalar(x, val=0.0)
    if x.dtype.kind == "f" and equation.dtype.kind in "iu":
        return F.cast(F.unlink(x), dtype=equation.dtype)
    return in_dtype(x, equation.dtype)


@opens("reduce_precision")
def _reduce_precision(equation: JaxprEquation, x: Variable) -> Variable:
    """The identity if the dtype has no more digits. JAX rounds the derivative alike."""
    digits = jnp.finfo(equation.dtype)
    enough = equation.params["exponent_bits"] >= digits.nexp and equation.params["mantissa_bits"] >= digits.nmant
    require(enough, "it reduces the precision")
    return x


POINTWISE |= {
    "bitcast_convert_type", "nextafter", "reduce_precision", "zeta",
}  # fmt: skip
"""Primitives without a rule, or without one for some parameters. They are elementwise if the shapes are equal."""


# ---------------------------------------------------------------- comparisons and logic


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
    require(equation.dtype == bool, "it combines the bits of integers")
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
        condition = F.cast(condition, dtype=bool)  # which does not affect the dtype of the result
    return F.where(condition, yes, no)
