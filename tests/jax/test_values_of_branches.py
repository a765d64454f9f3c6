"""What derivatives of branches read of the branch that was taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad.jax as nj

A = np.random.default_rng(0).normal(size=(3, 3)) * 0.5


@pytest.fixture(autouse=True)
def _in_64_bits() -> Any:
    with jax.enable_x64(True):
        yield


def of_one(x: Any, matrix: Any, t: Any) -> Any:
    """Two branches with products; the second has a product of what it multiplied, and what may be infinite."""
    low = lambda x: jnp.tanh(matrix @ x)  # noqa: E731
    high = lambda x: matrix @ (x / jnp.sum((matrix @ jnp.sin(matrix @ x)) ** 2))  # noqa: E731
    return jax.lax.cond(t < 0.5, low, high, x)


def in_loop(x: Any, matrix: Any) -> Any:
    def step(x: Any, t: Any) -> tuple[Any, Any]:
        return of_one(x, matrix, t), x.sum()

    last, sums = jax.lax.scan(step, x, jnp.asarray([0.1, 0.9, 0.3, 0.6]))
    return jnp.sum(last**2) + jnp.sum(sums**3)


def nested(x: Any, matrix: Any) -> Any:
    def outer(x: Any) -> Any:
        y = jnp.cos(matrix @ x)
        return jax.lax.cond(y[0] > 2, lambda y: y, lambda y: of_one(y, matrix, y[1]), y) * y

    return jnp.sum(jax.lax.cond(x[0] > -5, outer, lambda x: matrix @ x, x) ** 2)


@pytest.mark.parametrize(("f", "argnums"), [(in_loop, 1), (nested, 0)])
def test_as_jax_at_three_orders(f: Callable[..., Any], argnums: int) -> None:
    x = jnp.asarray([0.3, -0.4, 0.8])

    def derivatives(m: Any) -> list[Any]:
        return [m.grad(f, argnums), m.hessian(f, argnums), m.jacfwd(m.hessian(f))]

    ours, theirs = (jax.jit(lambda *given, m=m: [d(*given) for d in derivatives(m)])(x, A) for m in (nj, jax))
    for found, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("each", [False, True])
def test_of_many_points(each: bool) -> None:
    xs = jnp.asarray(np.random.default_rng(1).normal(size=(4, 3)))
    ts = jnp.asarray([0.1, 0.9, 0.2, 0.7]) if each else jnp.asarray(0.9)

    def f(x: Any, t: Any) -> Any:
        return jnp.sum(of_one(x, A, t) ** 2)

    def derivatives(m: Any) -> list[Any]:
        every = [m.grad(f), m.hessian(f), m.grad(lambda x, t: m.grad(f)(x, t)[0])]
        return jax.jit(lambda xs, ts: [jax.vmap(d, (0, 0 if each else None))(xs, ts) for d in every])(xs, ts)

    for ours, theirs in zip(derivatives(nj), derivatives(jax), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_an_infinite_derivative_of_a_branch_that_some_do_not_take() -> None:
    matrix = jnp.eye(3)

    def f(x: Any, t: Any) -> Any:
        root = lambda x: jnp.sum(jnp.sqrt(matrix @ x))  # noqa: E731
        return jax.lax.cond(t < 0.5, root, lambda x: jnp.sum(matrix @ x**2), x)

    xs, ts = jnp.asarray([[1.0, 4.0, 9.0], [0.0, 0.0, 0.0]]), jnp.asarray([0.1, 0.9])
    found = jax.vmap(nj.grad(f))(xs, ts)
    np.testing.assert_allclose(found, [[1 / 2, 1 / 4, 1 / 6], [0, 0, 0]])
    found = jax.vmap(nj.hessian(f))(xs, ts)
    np.testing.assert_allclose(found, [np.diag([-1 / 4, -1 / 32, -1 / 108]), 2 * np.eye(3)])
