"""Incomplete gamma and beta functions, by their shapes too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
from tests.refusals import refused

V = nn.Variable.from_numpy_array
GAMMA = np.array([[0.3, 0.2], [2.5, 1.0], [10.0, 12.0], [150.0, 140.0]])
BETA = np.array([[1.5, 2.5, 0.4], [0.3, 0.7, 0.9], [20.0, 90.0, 0.2], [0.05, 0.07, 0.5]])


def _exact(function: Callable[..., Any], points: Any, orders: Sequence[int]) -> list[float]:
    """Partial derivatives at each point, in numbers of 50 digits."""
    with mpmath.workdps(50):
        return [float(mpmath.diff(function, tuple(map(mpmath.mpf, point)), tuple(orders))) for point in points]


def _upper(a: Any, x: Any) -> Any:
    return mpmath.gammainc(a, x, mpmath.inf, regularized=True)


def _lower(a: Any, x: Any) -> Any:
    return mpmath.gammainc(a, 0, x, regularized=True)


def _beta(a: Any, b: Any, x: Any) -> Any:
    return mpmath.betainc(a, b, 0, x, regularized=True)


@pytest.mark.parametrize(("function", "exact", "points", "orders"), [
    (F.gammainc, _lower, GAMMA, [(1, 0), (2, 0), (3, 0), (1, 1), (0, 2)]),
    (F.gammaincc, _upper, GAMMA, [(0, 0), (1, 0), (1, 1)]),
    (F.betainc, _beta, BETA, [(0, 0, 0), (1, 0, 0), (0, 1, 0), (2, 0, 0), (1, 1, 0), (0, 2, 0), (1, 0, 1), (0, 0, 2)]),
], ids=["lower gamma", "upper gamma", "beta"])  # fmt: skip
def test_partial_derivatives(
    function: Callable[..., nn.Variable], exact: Callable[..., Any], points: Any, orders: Sequence[Sequence[int]]
) -> None:
    inputs = [V(column.copy(), need_grad=True) for column in points.T]
    found = []
    for order in orders:
        y = function(*inputs)
        for x, times in zip(inputs, order, strict=True):
            for _ in range(times):
                (y,) = nn.grad(F.sum(y), x)
        found.append(y)
    nn.forward_all(found)
    for y, order in zip(found, orders, strict=True):
        np.testing.assert_allclose(y.d, _exact(exact, points, order), rtol=2e-12, err_msg=str(order))


def test_at_the_ends() -> None:
    """Polynomials there, with all their derivatives; and single precision loses no digits of its own."""
    x = V(np.array([0.0, 1.0]), need_grad=True)
    y, found = F.betainc(2.0, 3.0, x), []  # 6 x^2 - 8 x^3 + 3 x^4
    for _ in range(3):
        (y,) = nn.grad(F.sum(y), x)
        found.append(y.d.tolist())
    np.testing.assert_allclose(found, [[0, 0], [12, 0], [-48, 24]], atol=1e-13)
    assert np.isnan(F.betainc(2.0, 3.0, V([-0.1, 1.1, np.nan])).d).all()
    zero = V(np.zeros(1), need_grad=True)
    (slope,) = nn.grad(F.sum(F.gammainc(3.0, zero)), zero)  # x^2 exp(-x) / 2
    (curvature,) = nn.grad(F.sum(slope), zero)
    (third,) = nn.grad(F.sum(curvature), zero)
    assert [g.d.item() for g in (slope, curvature, third)] == [0, 0, pytest.approx(1)]
    columns = [V(column.astype("float32"), need_grad=True) for column in BETA.T]
    by_a, by_b = nn.grad(F.sum(F.betainc(*columns)), columns[:2])
    rounded = np.array([column.d for column in columns], np.float64).T
    np.testing.assert_allclose(by_a.d, _exact(_beta, rounded, (1, 0, 0)), rtol=3e-5)
    np.testing.assert_allclose(by_b.d, _exact(_beta, rounded, (0, 1, 0)), rtol=3e-5)


X = V(np.array([0.5, 1.5]))

test_the_order_of_arguments_is_that_of_scipy = refused([
    (lambda: F.hurwitz_zeta(X, 2.0), TypeError, "takes 1 positional argument"),
    (lambda: F.expn(X, 2), TypeError, "^expn: n must be an int, not a Variable"),
    (lambda: F.zeta(V(np.array(2.0)), X), TypeError, "^zeta: x must be a number, got a Variable"),
])  # fmt: skip
