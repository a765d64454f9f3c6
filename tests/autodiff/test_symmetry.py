"""Forward mode from backward rules, and the routes that nested gradients take."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial import Polynomial

import nngrad as nn
import nngrad.functions as F
from nngrad.autodiff.forward_mode import Pushforward
from nngrad.graph import Variable
from tests.autodiff.test_properties import SETTINGS
from tests.together import Check, by_itself, together, values

RNG = np.random.default_rng(0)
WEIGHTS = [RNG.normal(size=s) / s[0] ** 0.5 for s in [(1, 5), (5, 5), (5, 1)]]


def leaf(array: Any) -> Variable:
    return Variable.from_numpy_array(np.asarray(array, np.float64))


def network(x: Variable, activation: Callable[[Variable], Variable] = F.tanh) -> Variable:
    w = [leaf(a) for a in WEIGHTS]
    return F.affine(activation(F.affine(activation(F.affine(x, w[0])), w[1])), w[2])


def nested(y: Variable, xs: list[Variable], **options: Any) -> list[Variable]:
    """Gradients of gradients, one for each of `xs` in turn."""
    results = []
    for x in xs:
        (y,) = nn.grad(y, x, **options)
        results.append(y)
    return results


# ---------------------------------------------------------------- forward mode


def test_what_stops_gradients_stops_tangents() -> None:
    x = leaf([1.0, 2.0])
    stopped = F.sin(x)
    stopped.need_grad = False
    y = x * stopped + F.unlink(x) + F.greater_scalar(x, val=1.5)
    np.testing.assert_allclose(Pushforward()([y], [x], [leaf([1.0, 1.0])])[0].d, np.sin(x.d))


# ---------------------------------------------------------------- nested gradients


def as_plain(build: Callable[[], list[Variable]], atol: float = 0.0) -> Check:
    """What is built is the same without simplification."""
    got = build()
    with nn.simplify(False):
        plain = build()
    found = yield from values(*got, *plain)
    for a, b in zip(found[: len(got)], found[len(got) :], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=atol)


@pytest.mark.parametrize("order", ["xt", "xxt", "txx", "xtx", "ttx"])
@together
def test_mixed_partials(order: str) -> Check:
    x, t = leaf(RNG.uniform(-1, 1, (3, 1))), leaf(RNG.uniform(-1, 1, (3, 1)))
    u = F.sin(2 * x) * F.exp(-t) * network(x * t + x)
    orders = iter([order, sorted(order)])  # the latter without simplification
    yield from as_plain(lambda: nested(u, [{"x": x, "t": t}[c] for c in next(orders)])[-1:])


MOVES: dict[str, Callable[[Variable], Variable]] = {
    "transposed": lambda h: F.transpose(h),
    "last axis first": lambda h: F.transpose(h, axes=(h.ndim - 1, *range(h.ndim - 1))),
    "an axis more": lambda h: F.reshape(h, shape=(*h.shape, 1)),
    "repeated": lambda h: F.broadcast(F.reshape(h, shape=(1, *h.shape)), shape=(2, *h.shape)) * leaf([[[1.0]], [[3.0]]])
    if h.ndim == 2 else h,
    "summed": lambda h: F.sum(h, axis=0) if h.ndim > 2 else h,
}  # fmt: skip


@SETTINGS
@given(st.lists(st.sampled_from(list(MOVES)), min_size=1, max_size=4), st.sampled_from([(2, 2), (2, 3), (3, 1)]))
def test_axes_that_move_on_the_way(steps: list[str], shape: tuple[int, ...]) -> None:
    x = leaf(np.linspace(0.2, 1.1, math.prod(shape)).reshape(shape))

    def build() -> list[Variable]:
        y = x
        for step in steps:
            y = MOVES[step](y)
            y = F.sin(y * leaf(np.cos(np.arange(y.size)).reshape(y.shape)))  # no two elements alike
        return nested(y, [x] * 2)

    by_itself(as_plain(build, 1e-12))


def scalar_field(x: Variable) -> Variable:
    """A number that mixes all of x."""
    return F.sum(F.sin(x @ leaf(RNG_MATRIX)) ** 2) * F.logsumexp(x)


RNG_MATRIX = np.random.default_rng(1).normal(size=(3, 4))


@pytest.mark.parametrize("between", [
    lambda g: g,
    lambda g: g[:, :1],
    lambda g: F.sum(g * g),
    lambda g: F.sum(F.tanh(g), axis=0) * 2,
], ids=["itself", "a part", "a function", "a sum"])
@together
def test_gradients_of_numbers_are_differentiated_forward(between: Callable[[Variable], Variable]) -> Check:
    x = leaf(RNG.uniform(0.2, 1, (2, 3)))

    def third(y: Variable) -> Variable:
        for _ in range(2):
            (y,) = nn.grad(between(nn.grad(y, x)[0]), x)
        return y

    got = third(scalar_field(x))
    with nn.simplify(False):
        plain = third(scalar_field(x))
    a, b = yield from values(got, plain)
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max())  # parts cancel


# ---------------------------------------------------------------- where forward mode may not go


@pytest.mark.parametrize("field", [lambda x: F.sin(x) * x, lambda x: F.sum(F.sin(x) * F.sum(x * x))])
@together
def test_grad_outputs_that_depend_on_the_input(field: Callable[[Variable], Variable]) -> Check:
    x = leaf([[0.3], [1.7]])

    def build() -> list[Variable]:
        y = field(x)
        (first,) = nn.grad(y, x, grad_outputs=F.cos(x) if y.shape == x.shape else F.sum(F.cos(x)))
        return [first, *nested(first, [x] * 2)]

    yield from as_plain(build, 1e-12)


# ---------------------------------------------------------------- closed forms

POINTS = np.array([[-0.9], [-0.3], [0.4], [0.8]])


def tanh_derivative(n: int) -> np.ndarray[Any, Any]:
    """By the polynomials in y = tanh x of which each is the derivative of the last times 1 - y^2."""
    p = Polynomial([0.0, 1.0])
    for _ in range(n):
        p = p.deriv() * Polynomial([1.0, 0.0, -1.0])
    return p(np.tanh(POINTS))


def lorentz_derivative(n: int) -> np.ndarray[Any, Any]:
    """1/(1 + x^2) is the imaginary part of 1/(x - i)."""
    return (-1.0) ** n * math.factorial(n) * ((POINTS - 1j) ** -(n + 1.0)).imag


@pytest.mark.parametrize(("f", "derivative"), [
    (F.sin, lambda n: np.sin(POINTS + n * np.pi / 2)),
    (lambda x: F.exp(2 * x), lambda n: 2.0**n * np.exp(2 * POINTS)),
    (F.tanh, tanh_derivative),
    (lambda x: x**15, lambda n: math.factorial(15) / math.factorial(15 - n) * POINTS ** (15 - n)),
    (lambda x: 1 / (1 + x**2), lorentz_derivative),
], ids=["sin", "exp", "tanh", "power", "lorentz"])  # fmt: skip
@together
def test_derivatives_up_to_order_12(f: Callable[[Variable], Variable], derivative: Callable[[int], Any]) -> Check:
    x = leaf(POINTS)
    for n, g in enumerate((yield from values(*nn.nth_derivative(f(x), x, 12))), start=1):
        expected = derivative(n)
        np.testing.assert_allclose(g, expected, rtol=1e-8, atol=1e-9 * np.abs(expected).max())
