"""Derivatives of elementwise functions over their range: in both tails, at 0, near singularities, in three dtypes.

The oracle is mpmath. Where a function is rounded to its limit, its derivatives are small numbers, and must be right all
the same: as right as the function's own values in that dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
import nngrad.jax as nj

ORDERS = 4


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def _softplus(x: Any) -> Any:
    return mp.log1p(mp.exp(x))


def _gelu(x: Any) -> Any:
    return x * _sigmoid(2 * mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3))


def _erfcx(x: Any) -> Any:
    return mp.exp(x * x) * mp.erfc(x)


BOTH = (-30.0, -9.5, -3.0, -0.4, 0.0, 0.7, 2.5, 9.5, 30.0)
TABLE: dict[str, tuple[Callable[[Any], Any], tuple[float, ...]]] = {
    "tanh": (mp.tanh, BOTH),
    "sigmoid": (_sigmoid, BOTH),
    "softplus": (_softplus, BOTH),
    "log_sigmoid": (lambda x: -_softplus(-x), BOTH),
    "swish": (lambda x: x * _sigmoid(x), BOTH),
    "gelu": (_gelu, (-4.0, -3.0, -0.4, 0.0, 0.7, 2.5, 4.0)),
    "mish": (lambda x: x * mp.tanh(_softplus(x)), (-30.0, -3.0, -0.4, 0.0, 0.7, 2.5, 9.5)),
    "erf": (mp.erf, (-5.0, -0.4, 0.0, 0.7, 2.5, 5.0)),
    "erfc": (mp.erfc, (-5.0, -0.4, 0.0, 0.7, 2.5, 5.0)),
    "erfcx": (_erfcx, (-2.0, -0.4, 0.0, 0.6, 0.8, 1.4, 1.6, 5.0, 100.0, 1000.0)),
    "i0e": (lambda x: mp.besseli(0, x) * mp.exp(-abs(x)), (-40.0, -3.0, 0.7, 12.0, 29.0, 31.0, 1000.0)),
    "i1e": (lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), (-40.0, -3.0, 0.7, 12.0, 29.0, 31.0, 1000.0)),
    "atan": (mp.atan, (-40.0, -0.4, 0.0, 0.7, 40.0)),
    "asinh": (mp.asinh, (-40.0, -0.4, 0.0, 0.7, 40.0)),
    "atanh": (mp.atanh, (-0.99, -0.4, 0.0, 0.7, 0.999)),
    "log1p": (mp.log1p, (-0.99, -0.4, 0.0, 0.7, 1000.0)),
    "expm1": (mp.expm1, (-30.0, -0.4, 0.0, 0.7, 9.5)),
    "lgamma": (mp.loggamma, (0.01, 0.7, 2.5, 40.0)),
    "digamma": (mp.digamma, (0.01, 0.7, 2.5, 40.0)),
    "softsign": (lambda x: x / (1 + abs(x)), (-30.0, -0.4, 0.7, 40.0)),
}
DTYPES = {np.float64: 1e-11, np.float32: 2e-4, np.float16: 2e-2}
"""The relative error that is admitted; a smaller error than the dtype's smallest normal number always is."""


@pytest.fixture(scope="module")
def wanted() -> dict[tuple[str, Any], np.ndarray]:
    """By function and dtype: the derivatives of the orders 0 to 4, one row for each, at the rounded points."""
    found = {}
    with mp.workdps(50):
        for name, (exact, points) in TABLE.items():
            for dtype in DTYPES:
                at = np.array(points, dtype).astype(np.float64)
                rows = [[c * mp.factorial(n) for n, c in enumerate(mp.taylor(exact, mp.mpf(p), ORDERS))] for p in at]
                found[name, dtype] = np.array(rows, float).T
    return found


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.__name__)
def test_every_order_is_right_over_the_whole_range(dtype: Any, wanted: Any) -> None:
    levels: dict[str, list[nn.Variable]] = {}
    for name, (_, points) in TABLE.items():
        x = nn.Variable.from_numpy_array(np.array(points, dtype))
        levels[name] = [getattr(F, name)(x)]
        for _ in range(ORDERS):
            levels[name] += nn.grad(levels[name][-1], x)
    nn.forward_all([y for ys in levels.values() for y in ys])
    least = float(np.finfo(dtype).tiny)
    wrong = []
    for name, ys in levels.items():
        for order, y in enumerate(ys):
            exact, got = wanted[name, dtype][order], np.asarray(y.d, np.float64)
            scale = np.abs(wanted[name, dtype]).max(0) if dtype == np.float16 else np.abs(exact)
            bad = np.abs(got - exact) > DTYPES[dtype] * scale + 4 * least
            bad &= np.abs(exact) < float(np.finfo(dtype).max) / 4
            wrong += [(name, order, TABLE[name][1][i], got[i], exact[i]) for i in np.flatnonzero(bad)]
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
