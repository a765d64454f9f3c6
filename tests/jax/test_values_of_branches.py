"""Derivatives of branches at many points, which take different ones."""

from __future__ import annotations

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
