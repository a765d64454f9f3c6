"""What derivatives of branches read of the branch that was taken."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F
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


@pytest.mark.parametrize("derivative", ["grad", "hessian"])
def test_no_more_products_than_jax(derivative: str) -> None:
    def f(x: Any, matrix: Any) -> Any:
        def step(x: Any, t: Any) -> tuple[Any, None]:
            run = lambda x: jnp.tanh(matrix @ jnp.sin(matrix @ x))  # noqa: E731
            return jax.lax.cond(t < 0.5, run, lambda x: x, x), None

        return jnp.sum(jax.lax.scan(step, x, jnp.arange(4) * 0.2)[0] ** 2)

    def products(of: Any) -> int:
        text = jax.jit(getattr(of, derivative)(f)).lower(jnp.ones(3), A).as_text()
        return len(re.findall("stablehlo.dot_general", text))

    assert products(nj) <= products(jax)


def test_debug_mode_and_descriptions() -> None:
    given, weights = np.array([0.3, -0.4, 0.8], "f"), A.astype("f")
    x, w = nn.Variable.from_numpy_array(given), nn.Variable.from_numpy_array(weights)
    x.need_grad = True
    rows = F.reshape(x, shape=(1, 3))
    y = F.sum(F.cond(F.sum(x) > 0, lambda v: F.sin(F.affine(v, w)), lambda v: v, rows))
    (g,) = nn.grad(y, x)
    expected = weights @ np.cos(given @ weights)
    np.testing.assert_allclose(g.d, expected, rtol=1e-5)
    with nn.debug():
        g.forward()
    np.testing.assert_allclose(g.d, expected, rtol=1e-5)
    assert "cos" in str(nn.show(g))
    assert [held.op for held in nn.memory_report(g).kept if "switch" in held.op]
