"""Differential equations: against closed forms, and against what JAX differentiates step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import nngrad as nn
import nngrad.functions as F
from nngrad.graph import Variable
from tests.exact import exactly
from tests.leaves import leaf
from tests.oracle import check

TIMES = np.array([0.0, 0.4, 1.0])
A, Y = np.array(1.3), np.array([0.2, 0.6])


def growth(y: Variable, t: Variable, a: Variable) -> Variable:
    """Logistic growth, at a rate that changes with the time."""
    return a * (1 + t) * y * (1 - y)


def grown(a: Any, y0: Any, times: Any) -> Any:
    """What it leads to, in closed form."""
    elapsed = (times + times**2 / 2)[:, None] - (times[0] + times[0] ** 2 / 2)
    return 1 / (1 + (1 / y0 - 1) * jnp.exp(-a * elapsed))


def by_midpoints(f: Callable[..., Any], y: Any, times: Any, steps: int) -> Any:
    """The midpoint method in JAX."""

    def interval(y: Any, ends: Any) -> Any:
        h = (ends[1] - ends[0]) / steps

        def step(y: Any, k: Any) -> Any:
            t = ends[0] + k * h
            return y + h * f(y + h / 2 * f(y, t), t + h / 2), None

        y = lax.scan(step, y, jnp.arange(steps) * 1.0)[0]
        return y, y

    rest = lax.scan(interval, y, (times[:-1], times[1:]))[1]
    return jnp.concatenate([y[None], rest])


@pytest.mark.parametrize("times, orders", [(TIMES, 2), pytest.param(TIMES[1:], 3, marks=pytest.mark.slow)])
def test_fixed_steps_are_differentiated_as_they_are(times: np.ndarray, orders: int) -> None:
    def ours(a: Variable, y: Variable, times: Variable) -> Variable:
        return nn.odeint(growth, y, times, a, method="midpoint", steps=3)

    def theirs(a: Any, y: Any, times: Any) -> Any:
        return by_midpoints(lambda y, t: a * (1 + t) * y * (1 - y), y, times, 3)

    check(ours, theirs, [A, Y, times], orders)


@pytest.mark.parametrize("method, order", [
    ("euler", 1), ("rk4", 4), *[pytest.param(*each, marks=pytest.mark.slow) for each in (("midpoint", 2), ("heun", 2))],
])  # fmt: skip
def test_the_order_of_methods_and_of_their_gradients(method: str, order: int) -> None:
    exact = exactly(grown, A, Y, TIMES)
    slope = np.sum(exact * (1 - exact) * (TIMES + TIMES**2 / 2)[:, None])
    errors = []
    for steps in (10, 20):
        a = leaf(A)
        ys = nn.odeint(growth, Y, TIMES, a, method=method, steps=steps)
        (g,) = nn.grad(F.sum(ys), a)
        errors.append([np.abs(ys.d - exact).max(), abs(g.d - slope)])
    rates = np.log2(np.divide(*errors))
    assert (rates > order - 0.35).all(), rates


def test_dormand_prince_to_order_2() -> None:
    a, y, times = leaf(A), leaf(Y), leaf(TIMES[1:])
    ys = nn.odeint(growth, y, times, a, rtol=1e-11, max_steps=80)
    gradients = nn.grad(F.sum(F.sin(ys)), [a, y, times])
    total = F.sum(gradients[1] * np.array([1.0, 2.0])) + F.sum(gradients[2] * np.array([3.0, 4.0]))
    found = [ys, *gradients, *nn.grad(total, [a, y])]
    nn.forward_all(found)

    def everything(*xs: Any) -> list[Any]:
        slopes = jax.grad(lambda *xs: jnp.sum(jnp.sin(grown(*xs))), (0, 1, 2))
        s = lambda *xs: jnp.vdot(slopes(*xs)[1], np.array([1.0, 2.0])) + jnp.vdot(  # noqa: E731
            slopes(*xs)[2], np.array([3.0, 4.0]))  # fmt: skip
        return [grown(*xs), *slopes(*xs), *jax.grad(s, (0, 1))(*xs)]

    expected = exactly(everything, A, Y, TIMES[1:])
    for ours, theirs, rtol in zip(found, expected, [1e-9, 1e-7, 1e-7, 1e-7, 1e-6, 1e-6], strict=True):
        np.testing.assert_allclose(ours.d, theirs, rtol=rtol)


def test_forward() -> None:
    a, one = leaf(A), leaf(1.0)
    y = nn.odeint(growth, Y, TIMES[1:], a, method="rk4", steps=40)
    h: Callable[..., Any] = lambda a: grown(a, Y, TIMES[1:])  # noqa: E731
    found, expected = [y], [h]
    for _ in range(2):
        found += nn.jvp(found[-1], a, one)
        expected.append(jax.jacfwd(expected[-1]))
    nn.forward_all(found)
    for y, value in zip(found, exactly(lambda a: [h(a) for h in expected], A), strict=True):
        np.testing.assert_allclose(y.d, value, rtol=1e-5, atol=1e-7)


def test_the_second_derivatives_of_a_neural_ode() -> None:
    rng = np.random.default_rng(2)
    w, v, y = leaf(rng.normal(size=(2, 3))), leaf(rng.normal(size=(3, 2))), leaf(rng.normal(size=(2, 2)))

    def theirs(w: Any, v: Any) -> Any:
        return jnp.sum(by_midpoints(lambda y, t: jnp.tanh(y @ w) @ v, y.d, TIMES[1:], 4)[-1] ** 2)

    expected = exactly(jax.hessian(theirs), w.d, v.d)
    end = nn.odeint(lambda y, t: F.tanh(y @ w) @ v, y, TIMES[1:], method="midpoint", steps=4)[-1]
    hessian = nn.hessian(F.sum(end**2), w, batched=False).d
    np.testing.assert_allclose(hessian.reshape(expected.shape), expected, atol=1e-11 * np.abs(expected).max())


def test_a_pytree_backwards_in_time() -> None:
    state = {"x": leaf([1.0, 0.0]), "v": leaf([[0.0], [1.0]])}
    times = np.array([0.0, -0.5, -np.pi])

    def field(y: Any, t: Variable) -> Any:
        return {"x": F.reshape(y["v"], shape=(2,)), "v": F.reshape(-y["x"], shape=(2, 1))}

    for way in ({"method": "rk4", "steps": 100}, {"rtol": 1e-10}):
        ys = nn.odeint(field, state, times, **way)
        np.testing.assert_allclose(ys["x"].d, np.stack([np.cos(times), np.sin(times)], -1), atol=1e-7)
        assert ys["v"].shape == (3, 2, 1)
        (g,) = nn.grad(ys["x"][-1, 0], state["v"])
        np.testing.assert_allclose(g.d[:, 0], [np.sin(-np.pi), 0], atol=1e-7)


@pytest.mark.parametrize("call, error, message", [
    (lambda: nn.odeint(lambda y, t: y[:1], np.ones(2), TIMES), ValueError, r"y0 is float64\[2\], but fun returns"),
])  # fmt: skip
def test_bad_input(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_steps_that_run_out_are_nan_at_every_order() -> None:
    a = nn.Variable.from_numpy_array(np.array(2.0), need_grad=True)
    y = nn.odeint(lambda y, t, a: a * y, np.array(1.0), np.array([0.0, 1.0]), a, max_steps=3)[1]
    for _ in range(3):
        assert np.isnan(y.d)
        (y,) = nn.grad(y, a)
