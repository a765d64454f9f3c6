"""Derivatives of elementwise functions over their range: in both tails, at 0, near singularities, in three dtypes.

The oracle is mpmath. Where a function is rounded to its limit, its derivatives are small numbers, and must be right all
the same: as right as the function's own values in that dtype.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.jax as nj
from tests.slow import slow_but_every

ORDERS = 4


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def _softplus(x: Any) -> Any:
    return mp.log1p(mp.exp(x))


def _gelu(x: Any) -> Any:
    return x * _sigmoid(2 * mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3))


def _erfcx(x: Any) -> Any:
    return mp.exp(x * x) * mp.erfc(x)


def _ndtr(x: Any) -> Any:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def _ndtri(p: Any) -> Any:
    return mp.findroot(lambda x: mp.log(_ndtr(x)) - mp.log(p), NormalDist().inv_cdf(float(p)))


def _sinc(x: Any) -> Any:
    return mp.sin(x) / x if x else mp.mpf(1)


# All points are whole numbers times powers of 2, so that they are the same in each dtype that has them.
BOTH = (-30.0, -9.5, -3.0, -0.375, 0.0, 0.75, 2.5, 9.5, 30.0)
UNIT = (-0.9921875, -0.375, 0.0, 2.0**-10, 0.75, 1 - 2.0**-10)
POSITIVE = (2.0**-10, 2.0**-7, 0.75, 1.0, 2.5, 40.0, 8192.0)
EITHER = (*[-x for x in POSITIVE], *POSITIVE)
BESSEL = (-40.0, -3.0, 2.0**-10, 0.75, 8.0, 12.0, 29.0, 31.0, 80.0)
A, B = 2.5, 0.75
Case = tuple[Callable[[Any], Any], Sequence[float], Callable[[Any], Any] | None]


def _row(exact: Callable[[Any], Any], points: Sequence[float], ours: Callable[[Any], Any] | None = None) -> Case:
    return exact, points, ours


TABLE: dict[str, Case] = {
    "tanh": _row(mp.tanh, BOTH),
    "sigmoid": _row(_sigmoid, BOTH),
    "softplus": _row(_softplus, BOTH),
    "log_sigmoid": _row(lambda x: -_softplus(-x), BOTH),
    "swish": _row(lambda x: x * _sigmoid(x), BOTH),
    "gelu": _row(_gelu, (-4.0, -3.0, -0.375, 0.0, 0.75, 2.5, 4.0)),
    "mish": _row(lambda x: x * mp.tanh(_softplus(x)), (-30.0, -3.0, -0.375, 0.0, 0.75, 2.5, 9.5)),
    "erf": _row(mp.erf, (-5.0, -0.375, 0.0, 0.75, 2.5, 5.0)),
    "erfc": _row(mp.erfc, (-5.0, -0.375, 0.0, 0.75, 2.5, 5.0)),
    "erfcx": _row(_erfcx, (-2.0, -0.375, 0.0, 0.625, 0.8125, 1.375, 1.625, 5.0, 100.0, 1000.0)),
    "i0e": _row(lambda x: mp.besseli(0, x) * mp.exp(-abs(x)), (*BESSEL, 1000.0)),
    "i1e": _row(lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), (*BESSEL, 1000.0)),
    "atan": _row(mp.atan, (-(2.0**22), -40.0, -0.375, 0.0, 0.75, 40.0)),
    "asinh": _row(mp.asinh, (-40.0, -0.375, 0.0, 0.75, 40.0)),
    "atanh": _row(mp.atanh, UNIT),
    "log1p": _row(mp.log1p, (-0.9921875, -0.375, 0.0, 0.75, 1000.0)),
    "expm1": _row(mp.expm1, (-30.0, -0.375, 0.0, 0.75, 9.5)),
    "lgamma": _row(lambda x: mp.log(abs(mp.gamma(x))), (-2.75, -0.5, 2.0**-7, 0.75, 2.5, 40.0, 1000.0)),
    "digamma": _row(mp.digamma, (-2.75, -0.5, 2.0**-7, 0.75, 2.5, 40.0, 1000.0)),
    "softsign": _row(lambda x: x / (1 + abs(x)), (-30.0, -0.375, 0.75, 40.0)),
    "log_ndtr": _row(lambda x: mp.log(_ndtr(x)), (-30.0, -12.0, -5.0, -1.0, 0.0, 0.75, 3.0, 9.0, 12.0, 40.0)),
}
REST: dict[str, Case] = {
    "sin": _row(mp.sin, (*BOTH, 1000.0)),
    "cos": _row(mp.cos, (*BOTH, 1000.0)),
    "tan": _row(mp.tan, (-1.5, -0.375, 0.0, 0.75, 1.5625)),
    "sinh": _row(mp.sinh, (-30.0, -0.375, 0.0, 2.0**-10, 0.75, 9.5, 80.0)),
    "cosh": _row(mp.cosh, (-30.0, -0.375, 0.0, 2.0**-10, 0.75, 9.5, 80.0)),
    "exp": _row(mp.exp, (-80.0, *BOTH, 80.0)),
    "log": _row(mp.log, POSITIVE),
    "log2": _row(lambda x: mp.log(x) / mp.log(2), POSITIVE),
    "log10": _row(lambda x: mp.log(x) / mp.log(10), POSITIVE),
    "sqrt": _row(mp.sqrt, POSITIVE),
    "rsqrt": _row(lambda x: 1 / mp.sqrt(x), POSITIVE),
    "cbrt": _row(lambda x: mp.sign(x) * mp.cbrt(abs(x)), EITHER),
    "reciprocal": _row(lambda x: 1 / x, EITHER),
    "square": _row(lambda x: x * x, BOTH),
    "asin": _row(mp.asin, UNIT),
    "acos": _row(mp.acos, UNIT),
    "acosh": _row(mp.acosh, (1 + 2.0**-10, 1.125, 2.5, 40.0, 8192.0, 2.0**22)),
    "sinc": _row(_sinc, (-40.0, -3.0, -1.0, -0.375, 0.0, 2.0**-20, 2.0**-10, 0.875, 1.125, 2.0, 9.5, 100.0)),
    "erfinv": _row(mp.erfinv, UNIT),
    "erfcinv": _row(lambda x: -_ndtri(x / 2) / mp.sqrt(2), (2.0**-80, 2.0**-10, 0.75, 1.5, 1.9375)),
    "ndtri": _row(_ndtri, (2.0**-80, 2.0**-10, 0.75, 0.9375)),
    "ndtr": _row(_ndtr, (-12.0, -5.0, 0.0, 0.75, 3.0, 9.0, 12.0)),
    "tanh_shrink": _row(lambda x: x - mp.tanh(x), (-30.0, -3.0, -0.375, 0.75, 9.5, 30.0)),
    "elu": _row(lambda x: x if x > 0 else mp.expm1(x), (-30.0, -3.0, -(2.0**-10), 2.0**-10, 40.0)),
    "expi": _row(mp.ei, (-30.0, -3.0, -0.375, 2.0**-10, 0.75, 6.0, 30.0)),
    "i0": _row(lambda x: mp.besseli(0, x), (0.0, *BESSEL)),
    "i1": _row(lambda x: mp.besseli(1, x), (0.0, *BESSEL)),
    "hurwitz_zeta": _row(lambda q: mp.zeta(A, q), (2.0**-7, 0.75, 2.5, 40.0), lambda q: F.hurwitz_zeta(q, x=A)),
    "polygamma": _row(lambda x: mp.polygamma(1, x), (-2.75, 2.0**-7, 0.75, 2.5, 40.0), lambda x: F.polygamma(1, x)),
    "x**2.5": _row(lambda x: x ** mp.mpf(A), POSITIVE, lambda x: x**A),
    "x**-0.75": _row(lambda x: x ** mp.mpf(-B), POSITIVE, lambda x: x**-B),
    "2.5**x": _row(lambda x: mp.mpf(A) ** x, BOTH, lambda x: A**x),
    "x**x": _row(lambda x: x**x, (2.0**-5, 0.75, 1.0, 2.5, 9.5), lambda x: x**x),
    "xlogy": _row(lambda x: x * mp.log(x), POSITIVE, lambda x: F.xlogy(x, x)),
    "xlog1py": _row(lambda x: x * mp.log1p(x), (-0.9921875, 0.0, 2.0**-10, 0.75, 40.0), lambda x: F.xlog1py(x, x)),
    "atan2 above": _row(lambda x: mp.atan2(x, B), (-40.0, -0.375, 2.0**-10, 0.75, 40.0), lambda x: F.atan2(x, B)),
    "atan2 below": _row(lambda x: mp.atan2(B, x), (-40.0, -0.375, 2.0**-10, 0.75, 40.0), lambda x: F.atan2(B, x)),
    "logaddexp": _row(_softplus, BOTH, lambda x: F.logaddexp(x, 0.0)),
    "logaddexp tied": _row(lambda x: abs(x) + _softplus(-2 * abs(x)), BOTH, lambda x: F.logaddexp(x, -x)),
    "betaln": _row(lambda x: mp.log(mp.beta(x, 2 * x)), (2.0**-7, 0.75, 2.5), lambda x: F.betaln(x, 2 * x)),
    "betaln far apart": _row(lambda x: mp.log(mp.beta(x, B)), (2.0**-10, 11.0, 8192.0), lambda x: F.betaln(x, B)),
    "sigmoid_cross_entropy": _row(lambda x: _softplus(-x), BOTH, lambda x: F.sigmoid_cross_entropy(x, 1.0)),
    "huber_loss": _row(
        lambda x: x * x if abs(x) < A else A * (2 * abs(x) - A), (-40.0, -1.0, 0.0, 1.0, 40.0),
        lambda x: F.huber_loss(x, 0.0, delta=A),
    ),
    "gammainc": _row(lambda x: mp.gammainc(A, 0, x, regularized=True), POSITIVE[:6], lambda x: F.gammainc(A, x)),
    "gammaincc": _row(
        lambda x: mp.gammainc(A, x, mp.inf, regularized=True), POSITIVE[:6], lambda x: F.gammaincc(A, x)
    ),
    "betainc": _row(lambda x: mp.betainc(A, B, 0, x, regularized=True), (2.0**-7, 0.375, 0.75, 1 - 2.0**-7),
                    lambda x: F.betainc(A, B, x)),
    "expn": _row(lambda x: mp.expint(2, x), POSITIVE[:6], lambda x: F.expn(2, x)),
    "bessel_j": _row(
        lambda x: mp.besselj(1, x), (-40.0, -3.0, 0.0, 2.0**-10, 0.75, 9.5, 100.0), lambda x: F.bessel_j(1, x)
    ),
}  # fmt: skip
DTYPES = {np.float64: 1e-11, np.float32: 2e-4, np.float16: 2e-2}
"""The relative error that is admitted; a smaller error than the dtype's smallest normal number always is."""


@functools.cache
def wanted(name: str) -> np.ndarray:
    """The derivatives of the orders 0 to 4, one row for each, at the points of a function."""
    exact, points, _ = (TABLE | REST)[name]
    with mp.workdps(60):
        rows = [mp.taylor(exact, mp.mpf(p), ORDERS) for p in points]
        return np.array([[mp.re(c) * mp.factorial(n) for n, c in enumerate(row)] for row in rows], float).T


@pytest.mark.parametrize("dtype", slow_but_every(len(DTYPES), DTYPES), ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("table", [TABLE, pytest.param(REST, marks=pytest.mark.slow)], ids=["sigmoids", "rest"])
def test_every_order_is_right_over_the_whole_range(table: dict[str, Case], dtype: Any) -> None:
    levels: dict[str, list[nn.Variable]] = {}
    with np.errstate(over="ignore"):
        held = {name: np.array(points) == np.array(points, dtype) for name, (_, points, _) in table.items()}
    for name, (_, points, ours) in table.items():
        x = nn.Variable.from_numpy_array(np.array(points)[held[name]].astype(dtype))
        levels[name] = [(ours or getattr(F, name))(x)]
        for _ in range(ORDERS):
            levels[name] += nn.grad(levels[name][-1], x)
    nn.forward_all([y for ys in levels.values() for y in ys])
    least = float(np.finfo(dtype).tiny)
    wrong = []
    for name, ys in levels.items():
        at, own = np.array(table[name][1])[held[name]], wanted(name)[:, held[name]]
        for order, (y, exact) in enumerate(zip(ys, own, strict=True)):
            got = np.asarray(y.d, np.float64)
            scale = np.abs(own).max(0) if dtype == np.float16 else np.abs(exact)
            bad = ~(np.abs(got - exact) <= DTYPES[dtype] * scale + 4 * least)
            bad &= np.abs(exact) < float(np.finfo(dtype).max) / 4
            wrong += [(name, order, at[i], got[i], exact[i]) for i in np.flatnonzero(bad)]
    assert not wrong, "\n".join(map(str, wrong))


def test_the_softmax_of_jax_keeps_its_tails() -> None:
    z = np.array([[40.0, 0.0], [3.0, 0.5]])
    with jax.enable_x64(True):
        for axis in (0, 1):
            jacobian = nj.jacobian(lambda z, axis=axis: jax.nn.softmax(z, axis))(jnp.asarray(z))
            p = np.exp(z) / np.exp(z).sum(axis, keepdims=True)
            other = np.exp(np.flip(z, axis)) / np.exp(z).sum(axis, keepdims=True)
            for i, j in np.ndindex(2, 2):
                np.testing.assert_allclose(jacobian[i, j, i, j], (p * other)[i, j], rtol=1e-12)
