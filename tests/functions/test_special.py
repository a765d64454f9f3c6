"""Special functions where they are large, small, or at their ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.special as ss

import nngrad as nn
import nngrad.functions as F
from tests.refusals import refused
from tests.together import Test, at_once

V = nn.Variable


def leaf(a: Any) -> V:
    return V.from_numpy_array(np.asarray(a, np.float64), need_grad=True)


WIDE = np.array([-25.0, -6.0, -1.5, -1e-9, 0.0, 1e-12, 0.3, 3.999, 4.0, 4.001, 7.5, 26.0])
INSIDE = np.array([1e-14, 1e-5, 0.02, 0.5, 0.9, 1 - 1e-6])
GAMMA = np.array([-7.3, -2.5, -0.01, 1e-4, 0.5, 1.0, 3.0, 40.5])


@at_once
@pytest.mark.parametrize(("name", "points"), [
    ("erfc", WIDE), ("erfcx", WIDE), ("erfcx", np.array([1e2, 1e5, 1e300])), ("ndtr", WIDE), ("log_ndtr", WIDE),
    ("log_ndtr", np.array([-300.0, -1e4])), ("erfinv", INSIDE), ("erfcinv", INSIDE), ("ndtri", INSIDE),
    ("log1p", INSIDE), ("expm1", WIDE), ("lgamma", GAMMA), ("digamma", GAMMA),
])  # fmt: skip
def test_values(name: str, points: np.ndarray[Any, Any]) -> Test:
    reference: Callable[..., Any] = {"lgamma": ss.gammaln, "log1p": np.log1p, "expm1": np.expm1}.get(
        name, getattr(ss, name, None)
    )
    (found,) = yield (getattr(F, name)(leaf(points)),)
    np.testing.assert_allclose(found, reference(points), rtol=2e-12, atol=1e-300)


@at_once
def test_gradients_of_log_ndtr_far_below_0() -> Test:
    """There the density is 0 in floating numbers, and the derivative is about -x."""
    x = leaf([-40.0, -1e3])
    (g,) = nn.grad(F.sum(F.log_ndtr(x)), x)
    first, second = yield g, *nn.grad(F.sum(g), x)
    far = x.d**2
    np.testing.assert_allclose(first, -x.d * (1 + 1 / far - 2 / far**2 + 10 / far**3), rtol=1e-9)
    np.testing.assert_allclose(second, -1 + 1 / far - 6 / far**2, rtol=1e-4)


@at_once
@pytest.mark.parametrize("order", range(1, 7))
def test_polygamma_meets_its_reflection_and_its_recurrence(order: int) -> Test:
    """psi_n(x + 1) - psi_n(x) = (-1)^n n! / x^(n + 1), across 0 too."""
    x = np.array([-3.4, -1.7, -0.2, 0.6, 2.9])
    before, after = yield F.polygamma(order, leaf(x)), F.polygamma(order, leaf(x + 1))
    step = (-1.0) ** order * ss.factorial(order) / x ** (order + 1)
    assert (np.abs(after - before - step) <= 1e-13 * (np.abs(before) + np.abs(after))).all()
    np.testing.assert_allclose(before[3:], ss.polygamma(order, x[3:]), rtol=1e-12)


@at_once
def test_nothing_cancels_in_betaln() -> Test:
    """Neither between logarithms of gamma functions, nor in derivatives where one argument is far above the other."""
    a, b = np.array([10.0, 1e4, 1e4, 3e7]), np.array([12.0, 0.5, 1e-3, 2e7])
    x = nn.Variable.from_numpy_array(a.astype(np.float32), need_grad=True)
    y = F.betaln(x, b.astype(np.float32))
    (first,) = nn.grad(F.sum(y), x)
    values, *found = yield F.betaln(leaf(a), leaf(b)), y, first, *nn.grad(F.sum(first), x)
    with mp.workdps(40):
        pairs = list(zip(map(mp.mpf, a), b, strict=True))
        exact = np.array([[mp.log(mp.beta(p, q)) for p, q in pairs]] +
                         [[mp.psi(n, p) - mp.psi(n, p + q) for p, q in pairs] for n in (0, 1)], float)
    np.testing.assert_allclose(values, exact[0], rtol=1e-15)
    np.testing.assert_allclose(found, exact, rtol=2e-6)


@at_once
def test_logaddexp_of_infinities() -> Test:
    inf = np.inf
    a, b = leaf([-inf, -inf, inf, inf, 2000.0, -2000.0]), leaf([-inf, 1.0, -inf, inf, 2000.0, 0.0])
    y = F.logaddexp(a, b)
    found, ga, gb = yield y, *nn.grad(F.sum(y), [a, b])
    np.testing.assert_allclose(found, np.logaddexp(a.d, b.d), rtol=1e-15)
    np.testing.assert_array_equal(ga, [0.5, 0, 1, 0.5, 0.5, 0])
    np.testing.assert_array_equal(gb, [0.5, 1, 0, 0.5, 0.5, 1])


test_bad_arguments = refused([
    (lambda x: F.polygamma(-1, x), ValueError, "n must be between 0 and 100, got -1"),
    (lambda x: F.zeta(x, x), TypeError, "x must be a number"),
    (lambda x: F.bessel_j(x, 2), TypeError, "^bessel_j: n must be an int, not a Variable"),
    (lambda x: F.digamma_derivative(x, order=0), ValueError, "order must be between 1 and 100"),
], given=lambda: leaf([0.5]))  # fmt: skip


@at_once
def test_bessel_functions_at_0_far_out_and_at_infinity() -> Test:
    x = V.from_numpy_array(np.array([0.0, 1e-9, 25.0, -60.0]))
    orders = [F.i0(x)]
    for _ in range(4):
        orders.append(nn.grad([orders[-1]], [x])[0])
    edges = V.from_numpy_array(np.array([-np.inf, 712.0, 1e5, np.inf]))
    *got, i0, i1, j3 = yield *orders, F.i0(edges), F.i1(edges), F.bessel_j(3, x)
    for order, values in enumerate(got):
        expected = ss.ivp(0, x.d, order)
        np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-9 * (order % 2), err_msg=str(order))
    np.testing.assert_allclose(i0, [np.inf, 2.4684111e307, np.inf, np.inf], rtol=1e-7)
    np.testing.assert_allclose(i1, [-np.inf, 2.4666770e307, np.inf, np.inf], rtol=1e-7)
    np.testing.assert_allclose(j3, ss.jv(3, x.d), rtol=1e-12, atol=1e-300)


@at_once
def test_a_power_of_a_negative_number_has_no_slope() -> Test:
    x = V.from_numpy_array(np.array([2.0, 3.0]))
    y = F.r_pow_scalar(x, -2.0)
    values, g = yield y, nn.grad([y], [x])[0]
    assert values.tolist() == [4.0, -8.0] and np.isnan(g).all()
