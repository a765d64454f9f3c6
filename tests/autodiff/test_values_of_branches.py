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


@pytest.mark.parametrize("f", [in_loop, nested])
@pytest.mark.parametrize("argnums", [0, 1])
def test_as_jax_at_three_orders(f: Callable[..., Any], argnums: int) -> None:
    x = jnp.asarray([0.3, -0.4, 0.8])
    ours, theirs = nj.grad(f, argnums), jax.grad(f, argnums)
    for _ in range(2):
        np.testing.assert_allclose(ours(x, A), theirs(x, A), rtol=1e-9, atol=1e-9)
        ours = nj.grad(lambda *given, f=ours: f(*given)[..., 0].sum(), argnums)
        theirs = jax.grad(lambda *given, f=theirs: f(*given)[..., 0].sum(), argnums)
    np.testing.assert_allclose(nj.hessian(f, argnums)(x, A), jax.hessian(f, argnums)(x, A), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        nj.jacfwd(nj.hessian(f))(x, A), jax.jacfwd(jax.hessian(f))(x, A), rtol=1e-8, atol=1e-8
    )


@pytest.mark.parametrize("each", [False, True])
def test_of_many_points(each: bool) -> None:
    xs = jnp.asarray(np.random.default_rng(1).normal(size=(4, 3)))
    ts = jnp.asarray([0.1, 0.9, 0.2, 0.7]) if each else jnp.asarray(0.9)

    def f(x: Any, t: Any) -> Any:
        return jnp.sum(of_one(x, A, t) ** 2)

    axes = (0, 0 if each else None)
    second = [d(lambda x, t, d=d: d(f)(x, t)[0]) for d in (nj.grad, jax.grad)]
    for ours, theirs in [(nj.grad(f), jax.grad(f)), (nj.hessian(f), jax.hessian(f)), second]:
        np.testing.assert_allclose(jax.vmap(ours, axes)(xs, ts), jax.vmap(theirs, axes)(xs, ts), rtol=1e-9)


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
