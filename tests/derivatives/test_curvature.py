"""Gauss-Newton matrices, Fisher information, their Kronecker factors and natural gradients, beside JAX's dense ones."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import nngrad as nn
import nngrad.functions as F

Arrays = list[np.ndarray]


def leaves(arrays: Arrays) -> list[nn.Variable]:
    return [nn.Variable.from_numpy_array(a, need_grad=True) for a in arrays]


def weights(rng: np.random.Generator, *sizes: int) -> Arrays:
    pairs = [(rng.standard_normal((m, n)), rng.standard_normal(n)) for m, n in pairwise(sizes)]
    return [a for pair in pairs for a in pair]


def network(m: Any, p: list[Any], x: Any) -> Any:
    for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
        x = m.tanh(x @ w + b)
    return x @ p[-2] + p[-1]


def jacobian(outputs: Callable[[Any], Any], arrays: Arrays) -> np.ndarray:
    """Of a function of a list, (m, n), by JAX."""
    point, unflatten = jax.flatten_util.ravel_pytree([jnp.asarray(a) for a in arrays])
    return np.asarray(jax.jacobian(lambda flat: jnp.ravel(outputs(unflatten(flat))))(point))


def flat(parts: Any) -> np.ndarray:
    return np.concatenate([np.ravel(part.d) for part in parts])


@pytest.fixture(autouse=True)
def wide() -> Any:
    with jax.enable_x64(True):
        yield


def fisher_of_softmax(logits: np.ndarray, j: np.ndarray, samples: int) -> np.ndarray:
    """The expected outer product of gradients of log likelihoods, summed over classes one by one."""
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    total = np.zeros((j.shape[1], j.shape[1]))
    for b, row in enumerate(p):
        own = j[b * len(row) : (b + 1) * len(row)]
        for k, share in enumerate(row):
            score = (np.eye(len(row))[k] - row) @ own
            total += share * np.outer(score, score)
    return total / samples


@pytest.mark.parametrize(("batch", "width", "out"), [(1, 2, 1), (3, 1, 2)])
def test_gauss_newton_is_that_of_the_dense_jacobian(batch: int, width: int, out: int) -> None:
    rng = np.random.default_rng(batch)
    arrays, x = weights(rng, 2, width, out), rng.standard_normal((batch, 2))
    with jax.enable_x64(True):
        p = leaves(arrays)
        j = jacobian(lambda p: network(jnp, p, x), arrays)
        r = network(F, p, nn.Variable.from_numpy_array(x))
        matrix = nn.gauss_newton(r, p)
        v = rng.standard_normal(j.shape[1])
        near = np.testing.assert_allclose
        near(matrix.rows().d, j, atol=1e-12)
        near(matrix.dense().d, j.T @ j, atol=1e-11)
        near((matrix @ v).d, j.T @ (j @ v), atol=1e-11)
        near(flat(matrix.diagonal()), np.diag(j.T @ j), atol=1e-11)
        solution = np.linalg.solve(j.T @ j + 0.1 * np.eye(j.shape[1]), v)
        for method in ("dense", "residual", "cg", None):
            near(matrix.solve(v, 0.1, method, tol=1e-13).d, solution, rtol=1e-8, atol=1e-9)
            step = nn.natural_gradient(matrix, damping=0.1, method=method, tol=1e-13)
            expected = np.linalg.solve(j.T @ j + 0.1 * np.eye(j.shape[1]), j.T @ r.d.ravel())
            near(flat(step), expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_fisher_of_softmax_by_an_explicit_sum(reduction: str) -> None:
    rng = np.random.default_rng(1)
    arrays, x = weights(rng, 3, 2, 3), rng.standard_normal((4, 3))
    p = leaves(arrays)
    logits = network(F, p, nn.Variable.from_numpy_array(x))
    j = jacobian(lambda p: network(jnp, p, x), arrays)
    known = fisher_of_softmax(logits.d, j, 4 if reduction == "mean" else 1)
    matrix = nn.fisher(logits, p, reduction=reduction)
    v = rng.standard_normal(len(known))
    np.testing.assert_allclose(matrix.dense().d, known, atol=1e-12)
    np.testing.assert_allclose((matrix @ v).d, known @ v, atol=1e-12)
    np.testing.assert_allclose(flat(matrix.diagonal()), np.diag(known), atol=1e-12)
    chunked = nn.fisher(logits, p, reduction=reduction, chunk=5)
    np.testing.assert_allclose(chunked.dense().d, known, atol=1e-12)


@pytest.mark.parametrize(("likelihood", "loss"), [
    ("categorical", lambda y, t: F.mean(F.softmax_cross_entropy(y, t[:, :1]))),
    ("bernoulli", lambda y, t: F.sum(F.sigmoid_cross_entropy(y, F.cast(t > 0, dtype="int32"))) / y.shape[0]),
    ("gaussian", lambda y, t: F.sum((y - t) ** 2) / 2 / y.shape[0]),
])  # fmt: skip
def test_fisher_of_a_linear_model_is_the_hessian_of_its_loss(likelihood: str, loss: Any) -> None:
    rng = np.random.default_rng(2)
    p = leaves(weights(rng, 3, 2))
    y = network(F, p, nn.Variable.from_numpy_array(rng.standard_normal((4, 3))))
    t = nn.Variable.from_numpy_array(np.array([[0, 1], [1, 0], [1, 1], [0, 0]]))
    value = loss(y, F.cast(t, dtype="float64") if likelihood == "gaussian" else t)
    blocks = nn.hessian(value, p, batched=False)
    hessian = np.block([[b.d.reshape(a.size, c.size) for b, c in zip(row, p, strict=True)]
                        for row, a in zip(blocks, p, strict=True)])  # fmt: skip
    matrix = nn.fisher(y, p, likelihood)
    np.testing.assert_allclose(matrix.dense().d, hessian, atol=1e-12)
    (g,) = [flat(nn.grad(value, p))]
    expected = np.linalg.solve(hessian + 0.3 * np.eye(8), g)
    np.testing.assert_allclose(flat(nn.natural_gradient(matrix, value, 0.3)), expected, atol=1e-10)


def test_products_are_differentiated_again() -> None:
    rng = np.random.default_rng(3)
    arrays, x = weights(rng, 2, 3, 3), rng.standard_normal((4, 2))
    v, u = [rng.standard_normal(a.shape) for a in arrays], rng.standard_normal((4, 3))

    def product(p: Any) -> Any:
        f = lambda p: network(jnp, p, x)  # noqa: E731
        y, forward = jax.jvp(f, (p,), (v,))
        share = jax.nn.softmax(y)
        seed = share * (forward - jnp.sum(share * forward, axis=1, keepdims=True))
        return jax.vjp(f, p)[1](seed)[0]

    def scalar(p: Any) -> Any:
        return sum(jnp.vdot(a, b) for a, b in zip(product(p), v, strict=True)) ** 2

    p = leaves(arrays)
    y = network(F, p, nn.Variable.from_numpy_array(x))
    both = F.add_n(*[F.sum(a * b) for a, b in zip(nn.fisher(y, p, reduction="sum") @ v, v, strict=True)]) ** 2
    assert float(both.d) == pytest.approx(float(scalar(arrays)))
    for mine, known in zip(nn.grad(both, p), jax.grad(scalar)(arrays), strict=True):
        np.testing.assert_allclose(mine.d, known, rtol=1e-9, atol=1e-9)

    def solved(p: Any) -> Any:
        def rows(flat: Any) -> Any:
            return jnp.ravel(network(jnp, unflatten(flat), x) - u)

        point, unflatten = jax.flatten_util.ravel_pytree(p)
        j = jax.jacobian(rows)(point)
        return jnp.sum(jnp.sin(j.T @ jnp.linalg.solve(j @ j.T + 0.1 * jnp.eye(len(j)), rows(point))))

    step = nn.natural_gradient(nn.gauss_newton(y - u, p), damping=0.1, method="residual")
    total = F.add_n(*[F.sum(F.sin(d)) for d in step])
    assert float(total.d) == pytest.approx(float(solved([jnp.asarray(a) for a in arrays])))
    for mine, known in zip(nn.grad(total, p), jax.grad(solved)([jnp.asarray(a) for a in arrays]), strict=True):
        np.testing.assert_allclose(mine.d, known, rtol=1e-7, atol=1e-8)


def test_lanczos_beside_eigh() -> None:
    rng = np.random.default_rng(8)
    arrays, x = weights(rng, 2, 3, 2), rng.standard_normal((4, 2))
    p = leaves(arrays)
    matrix = nn.fisher(network(F, p, nn.Variable.from_numpy_array(x)), p, "gaussian")
    found = nn.lanczos(matrix, k=17)
    values, vectors = np.linalg.eigh(matrix.dense().d)
    assert found.values[-4:] == pytest.approx(values[-4:])
    assert np.abs(np.sum(found.vectors[:, -4:] * vectors[:, -4:], axis=0)) == pytest.approx(np.ones(4))
    loss = F.sum(network(F, p, nn.Variable.from_numpy_array(x)) ** 2)
    blocks = nn.hessian(loss, p, batched=False)
    hessian = np.block([[b.d.reshape(a.size, c.size) for b, c in zip(row, p, strict=True)]
                        for row, a in zip(blocks, p, strict=True)])  # fmt: skip
    top = nn.lanczos(loss, p, 17, vectors=False)
    assert top.vectors is None and top.values[-1] == pytest.approx(np.linalg.eigvalsh(hessian)[-1])


def test_what_is_refused() -> None:
    p = leaves([np.ones((2, 2)), np.ones(2)])
    x = nn.Variable.from_numpy_array(np.ones((3, 2)))
    y = F.affine(x, *p)
    matrix = nn.gauss_newton(y, p)
    for call, error, message in [
        (lambda: nn.gauss_newton(y, []), ValueError, "parameters: expected at least one Variable, got none"),
        (lambda: nn.gauss_newton(y, p, chunk=0), ValueError, "chunk"),
        (lambda: nn.fisher(y, p, "poisson"), ValueError, "likelihood must be one of 'gaussian', 'categorical'"),
        (lambda: nn.fisher(y, p, reduction="none"), ValueError, "reduction must be"),
        (lambda: nn.fisher(F.sum(y), p), ValueError, "too few axes"),
        (lambda: matrix @ np.ones(5), ValueError, r"expected a vector of shape \(6,\)"),
        (lambda: matrix @ [np.ones((2, 2))], ValueError, "a list with one for each of 2 Variables, got 1"),
        (lambda: matrix.solve(np.ones(6), -1.0), ValueError, "damping must be a non-negative number"),
        (lambda: matrix.solve(np.ones(6), method="lu"), ValueError, "method must be one of 'residual'"),
        (lambda: nn.natural_gradient(y), TypeError, "metric: expected a result of nn.gauss_newton"),
        (lambda: nn.natural_gradient(nn.fisher(y, p)), ValueError, "pass the loss"),
        (lambda: nn.natural_gradient(matrix, y), ValueError, r"loss: must have shape \(\)"),
        (lambda: nn.lanczos(F.sum), ValueError, "start: expected a vector, because matrix is a function"),
        (lambda: nn.lanczos(3), TypeError, "expected a loss, a curvature matrix or a function"),
        (lambda: nn.lanczos(F.sum(y), p, start=np.zeros(6)), ValueError, "expected a nonzero vector"),
    ]:
        with pytest.raises(error, match=message):
            call()
