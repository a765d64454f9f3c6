"""Primitives on complex numbers, which are pairs of Variables: their real and imaginary parts.

Linear functions with real coefficients, such as reshapes, are applied to both parts. Results of primitives without a
rule here are `Delayed` until an equation makes real numbers of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from ... import functions as F
from ...extend import Variable
from ...functions.complex_matrices import general_eig, hermitian_eigh
from ..values import ComplexPair, KnownArray
from .registry import RULES, JaxprEquation, both_parts, require, scalar, variable

COMPLEX: dict[str, Callable[..., Any]] = {}
"""Rules by primitive name: `function(equation, *values)` returns pairs, or the same as a rule for real arrays."""


COMPLEX_POINTWISE = {
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp2", "expm1", "log1p", "log2", "logistic",
    "one_minus_square", "pow", "rsqrt", "sign", "sin", "sinh", "sqrt", "tan", "tanh",
}  # fmt: skip
"""Elementwise primitives for which there is no formula here: each part of the result is a function of the parts of the
inputs, and JAX provides its derivatives."""


def _on_pairs(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        COMPLEX.update(dict.fromkeys(names, function))
        return function

    return enter


def _real_rule(equation: JaxprEquation, *parts: Any) -> Any:
    """Apply the rule for real arrays to some parts."""
    rule = RULES[equation.name]
    values = [variable(v) if isinstance(v, KnownArray) and not rule.takes_known else v for v in parts]
    return rule.function(equation.of_parts(), *values)


@_on_pairs(
    "add", "add_any", "broadcast_in_dim", "concatenate", "copy", "cumsum", "dynamic_slice",
    "dynamic_update_slice", "gather", "neg", "pad", "reduce_sum", "reshape", "rev", "scatter",
    "scatter-add", "select_n", "slice", "split", "squeeze", "stack", "stop_gradient", "sub", "transpose", "unstack",
)  # fmt: skip
def _by_parts(equation: JaxprEquation, *values: Any) -> Any:
    real = _real_rule(equation, *[v.real if isinstance(v, ComplexPair) else v for v in values])
    imaginary = _real_rule(equation, *[v.imaginary if isinstance(v, ComplexPair) else v for v in values])
    if isinstance(real, list):
        return [ComplexPair(a, b) for a, b in zip(real, imaginary, strict=True)]
    return ComplexPair(real, imaginary)


@_on_pairs("mul", "dot_general", "conv_general_dilated")
def _product(equation: JaxprEquation, x: Any, y: Any) -> ComplexPair:
    x, y = _pair_of(equation, x), _pair_of(equation, y)  # a product of matrices may have a real factor

    def times(a: Any, b: Any) -> Any:
        if scalar(a) == 0 or scalar(b) == 0:
            return KnownArray(None, 0.0, equation.shape, equation.of_parts().dtype)
        return _real_rule(equation, a, b)

    return ComplexPair(
        _sum(times(x.real, y.real), times(x.imaginary, y.imaginary), -1.0),
        _sum(times(x.real, y.imaginary), times(x.imaginary, y.real), 1.0),
    )


def _sum(a: Any, b: Any, sign: float) -> Any:
    """`a + sign b`, leaving out known zeros."""
    if scalar(b) == 0:
        return a
    if scalar(a) == 0:
        return variable(b) if sign == 1 else F.mul_scalar(variable(b), val=-1.0)
    return F.add2(variable(a), variable(b)) if sign == 1 else F.sub2(variable(a), variable(b))


def _times(x: ComplexPair, y: ComplexPair) -> ComplexPair:
    a, b, c, d = map(variable, (x.real, x.imaginary, y.real, y.imaginary))
    return ComplexPair(F.sub2(F.mul2(a, c), F.mul2(b, d)), F.add2(F.mul2(a, d), F.mul2(b, c)))


def _inverse(x: ComplexPair) -> ComplexPair:
    """conj(x) / |x|^2"""
    a, b = variable(x.real), variable(x.imaginary)
    size = F.add2(F.square(a), F.square(b))
    return ComplexPair(F.div2(a, size), F.mul_scalar(F.div2(b, size), val=-1.0))


@_on_pairs("div")
def _quotient(equation: JaxprEquation, x: ComplexPair, y: ComplexPair) -> ComplexPair:
    return _times(x, _inverse(y))


@_on_pairs("integer_pow", "square")
def _power(equation: JaxprEquation, x: ComplexPair) -> ComplexPair:
    exponent = int(equation.params.get("y", 2))
    require(exponent != 0, "the exponent is 0")
    factor = x if exponent > 0 else _inverse(x)
    result, left = None, abs(exponent)
    while left:  # by the exponent's bits
        if left % 2:
            result = factor if result is None else _times(result, factor)
        left //= 2
        factor = _times(factor, factor) if left else factor
    assert result is not None
    return result


@_on_pairs("exp")
def _exponential(equation: JaxprEquation, x: ComplexPair) -> ComplexPair:
    angle = variable(x.imaginary)
    parts = F.cos(angle), F.sin(angle)
    if scalar(x.real) == 0:
        return ComplexPair(*parts)
    size = F.exp(variable(x.real))
    return ComplexPair(F.mul2(size, parts[0]), F.mul2(size, parts[1]))


@_on_pairs("log")
def _logarithm(equation: JaxprEquation, x: ComplexPair) -> ComplexPair:
    a, b = variable(x.real), variable(x.imaginary)
    return ComplexPair(F.mul_scalar(F.log(F.add2(F.square(a), F.square(b))), val=0.5), F.atan2(b, a))


@_on_pairs("abs")
def _absolute(equation: JaxprEquation, x: ComplexPair) -> Variable:
    both = F.stack(variable(x.real), variable(x.imaginary), axis=0)
    return F.norm(both, axis=0)


COMPLEX |= {"real": lambda equation, x: x.real, "imag": lambda equation, x: x.imaginary}


@_on_pairs("conj")
def _conjugate(equation: JaxprEquation, x: Any) -> ComplexPair:
    pair = _pair_of(equation, x)
    return ComplexPair(pair.real, _sum(_zero(equation), pair.imaginary, -1.0))


@_on_pairs("complex")
def _complex(equation: JaxprEquation, x: Any, y: Any) -> ComplexPair:
    return ComplexPair(*[_of_shape(p, equation.shape) for p in (x, y)])


def _of_shape(x: Any, shape: tuple[int, ...]) -> Any:
    """A part, broadcast to the shape of the result."""
    if tuple(x.shape) == shape:
        return x
    ones = (*[1] * (len(shape) - len(x.shape)), *x.shape)
    return F.broadcast(F.reshape(variable(x), shape=ones), shape=shape)


@_on_pairs("convert_element_type")
def _converted(equation: JaxprEquation, x: Any) -> ComplexPair:
    require(jnp.issubdtype(equation.dtype, jnp.complexfloating), "it converts complex numbers to real ones")
    pair = _pair_of(equation, x)
    dtype = equation.of_parts().dtype
    return ComplexPair(*[F.cast(p, dtype=dtype) if isinstance(p, Variable) else p for p in (pair.real, pair.imaginary)])


def _zero(equation: JaxprEquation) -> KnownArray:
    return KnownArray(None, 0.0, equation.shape, equation.of_parts().dtype)


def _pair_of(equation: JaxprEquation, x: Any) -> ComplexPair:
    """A value as a pair, even if it is real."""
    return x if isinstance(x, ComplexPair) else ComplexPair(x, _zero(equation))


@_on_pairs("triangular_solve")
def _triangular_solve(equation: JaxprEquation, a: Any, b: Any) -> ComplexPair:
    """A real triangular system of twice the size: divided by its diagonal, the matrix has ones there, so that real and
    imaginary parts of rows and columns may alternate."""
    p = equation.params
    lower, turned = bool(p["lower"]), bool(p["transpose_a"]) == bool(p["left_side"])
    (ar, ai), (br, bi) = both_parts(a), both_parts(b)
    ai = F.mul_scalar(ai, val=-1.0) if p["conjugate_a"] else ai
    if turned:
        ar, ai, lower = F.swapaxes(ar, -1, -2), F.swapaxes(ai, -1, -2), not lower
    if not p["left_side"]:
        br, bi = F.swapaxes(br, -1, -2), F.swapaxes(bi, -1, -2)
    strict = [F.trilu(x, k=-1 if lower else 1, upper=not lower) for x in (ar, ai)]
    if not p["unit_diagonal"]:
        shape = (*ar.shape[:-1], 1)
        over = _inverse(ComplexPair(*[F.reshape(F.matrix_diag_part(x), shape=shape) for x in (ar, ai)]))
        matrix, right = _times(ComplexPair(*strict), over), _times(ComplexPair(br, bi), over)
        strict, (br, bi) = [matrix.real, matrix.imaginary], (right.real, right.imaginary)
    ar, ai = strict
    rows = F.stack(ar, F.mul_scalar(ai, val=-1.0), axis=-1), F.stack(ai, ar, axis=-1)
    double = (*ar.shape[:-2], 2 * ar.shape[-2], 2 * ar.shape[-1])
    y = F.triangular_solve(
        F.reshape(F.stack(*rows, axis=-3), shape=double),
        F.reshape(F.stack(br, bi, axis=-2), shape=(*br.shape[:-2], 2 * br.shape[-2], br.shape[-1])),
        lower=lower, unit_diagonal=True,
    )  # fmt: skip
    parts = F.split(F.reshape(y, shape=(*br.shape[:-1], 2, br.shape[-1])), axis=-2)
    return ComplexPair(*[part if p["left_side"] else F.swapaxes(part, -1, -2) for part in parts])


@_on_pairs("eigh")
def _eigenvectors(equation: JaxprEquation, x: ComplexPair) -> list[Any]:
    every = (None, (0, equation.shape[-1]))
    require(equation.params.get("subset_by_index") in every, "it computes only some eigenvalues")
    values, real, imaginary = hermitian_eigh(*both_parts(x))
    return [ComplexPair(real, imaginary), values]


@_on_pairs("eig")
def _eigenvalues(equation: JaxprEquation, x: Any) -> ComplexPair:
    p = equation.params
    require(not p["compute_left_eigenvectors"] and not p["compute_right_eigenvectors"], "it computes eigenvectors")
    parts = (x.real, x.imaginary) if isinstance(x, ComplexPair) else (x,)
    real, imaginary, *_ = general_eig(*map(variable, parts))
    return ComplexPair(real, imaginary)


# ---------------------------------------------------------------- transforms


@_on_pairs("fft")
def _fft(equation: JaxprEquation, x: Any) -> Any:
    kind, lengths = lax.FftType(int(equation.params["fft_type"])), tuple(map(int, equation.params["fft_lengths"]))
    require(all(equation.shape) and all(lengths), "the arrays are empty")
    if kind == lax.FftType.RFFT:
        value = variable(x)
        if len(lengths) == 1:
            return ComplexPair(*F.real_fft(value))
        whole = _transformed(F.fft, ComplexPair(value, F.zeros_like(value)), len(lengths))
        return ComplexPair(*[_first(p, equation.shape[-1]) for p in (whole.real, whole.imaginary)])
    if kind != lax.FftType.IRFFT:
        return _transformed(F.fft if kind == lax.FftType.FFT else F.ifft, x, len(lengths))
    pair = x
    for axis in range(len(equation.shape) - len(lengths), len(equation.shape) - 1):
        turned = [F.swapaxes(variable(p), axis, -1) for p in (pair.real, pair.imaginary)]
        pair = _transformed(F.ifft, ComplexPair(*turned), 1)
        pair = ComplexPair(*[F.swapaxes(p, axis, -1) for p in (pair.real, pair.imaginary)])
    size = lengths[-1]
    # Every frequency except 0, and the highest of an even size, occurs twice: also as its conjugate.
    twice = np.full(size // 2 + 1, 2.0)
    twice[0] = 1
    if size % 2 == 0:
        twice[-1] = 1
    weights = KnownArray(np.broadcast_to(twice / size, variable(pair.real).shape).astype(equation.dtype)).variable()
    real, imaginary = [F.mul2(variable(p), weights) for p in (pair.real, pair.imaginary)]
    return F.real_fft_transpose(real, imaginary, size=size)


def _transformed(function: Callable[..., Variable], x: ComplexPair, axes: int) -> ComplexPair:
    both = function(F.stack(variable(x.real), variable(x.imaginary), axis=-1), signal_ndim=axes)
    real, imaginary = F.split(both, axis=-1)
    return ComplexPair(real, imaginary)


def _first(x: Variable, count: int) -> Variable:
    return F.take_slices(x, key=(*[(0, n, 1) for n in x.shape[:-1]], (0, count, 1)))
