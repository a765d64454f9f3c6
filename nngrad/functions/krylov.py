"""Matrix-free linear solvers: conjugate gradients and GMRES.

`jax.scipy.sparse.linalg` has these too. But there JAX always transposes the matrix, which not every function on arrays
allows, and does not count products. Here each method improves an approximation and restarts from its result until the
residual, computed by its definition, is small enough. So rounding errors in a recursively updated residual cannot pass
for convergence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

Product = Callable[[Any], Any]


class KrylovSolution(NamedTuple):
    """The result of a Krylov method."""

    x: jax.Array
    residual: jax.Array
    """The norm of b - A x."""
    steps: jax.Array
    """The number of products with the matrix, int32."""


def euclidean_norm(x: Any) -> Any:
    """The Euclidean norm of a vector."""
    return lax.sqrt(jnp.vdot(x, x))


def solved(method: str, product: Product, b: Any, start: Any, target: Any, most: int) -> KrylovSolution:
    """`x` with `A x = b`, by a key of `METHODS`. Iteration ends when the norm of the residual is at most `target`, or
    with the step that reaches `most` products."""
    improve = METHODS[method]

    def goes_on(state: tuple[Any, ...]) -> Any:
        _, r, steps = state
        return (euclidean_norm(r) > target) & (steps < most)

    def again(state: tuple[Any, ...]) -> tuple[Any, ...]:
        x, r, steps = state
        x, steps = improve(product, x, r, target, steps, most)
        return x, b - product(x), steps + 1

    x, r, steps = lax.while_loop(goes_on, again, (start, b - product(start), jnp.int32(1)))
    return KrylovSolution(x, euclidean_norm(r), steps)


def _conjugate_gradients(product: Product, x: Any, r: Any, target: Any, steps: Any, most: int) -> tuple[Any, Any]:
    """Hestenes and Stiefel (1952)."""

    def goes_on(state: tuple[Any, ...]) -> Any:
        _, _, _, square, steps = state
        return (lax.sqrt(square) > target) & (steps < most)

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        x, r, p, square, steps = state
        q = product(p)
        rate = square / jnp.vdot(p, q)
        r = r - rate * q
        after = jnp.vdot(r, r)
        return x + rate * p, r, r + (after / square) * p, after, steps + 1

    x, *_, steps = lax.while_loop(goes_on, step, (x, r, r, jnp.vdot(r, r), steps))
    return x, steps


_BASIS = 30
"""The largest number of basis vectors in GMRES."""


def _gmres(product: Product, x: Any, r: Any, target: Any, steps: Any, most: int) -> tuple[Any, Any]:
    """Saad and Schultz (1986): one basis, orthogonalised twice, and the best approximation in it."""
    del target, most
    n = r.shape[0]
    count = min(_BASIS, n)
    size = euclidean_norm(r)
    smallest = jnp.finfo(r.dtype).eps

    def extend(k: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        basis, coefficients = state
        w = product(lax.dynamic_index_in_dim(basis, k, keepdims=False))
        before = euclidean_norm(w)
        parts = basis @ w
        w = w - parts @ basis
        rest = basis @ w
        w, parts = w - rest @ basis, parts + rest
        length = euclidean_norm(w)
        # If the basis spans the Krylov space, only rounding errors are left, which become a vector of zeros.
        alone = length <= smallest * before
        w = jnp.where(alone, 0, w / jnp.where(alone, 1, length))
        column = lax.dynamic_update_index_in_dim(parts, jnp.where(alone, 0, length), k + 1, 0)
        return (
            lax.dynamic_update_index_in_dim(basis, w, k + 1, 0),
            lax.dynamic_update_index_in_dim(coefficients, column, k, 1),
        )

    basis = jnp.zeros((count + 1, n), r.dtype).at[0].set(r / size)
    basis, coefficients = lax.fori_loop(0, count, extend, (basis, jnp.zeros((count + 1, count), r.dtype)))
    right = jnp.zeros(count + 1, r.dtype).at[0].set(size)
    best = jnp.linalg.lstsq(coefficients, right)[0]
    return x + best @ basis[:-1], steps + count


def _iterate(product: Product, x: Any, r: Any, target: Any, steps: Any, most: int) -> tuple[Any, Any]:
    """The fixed-point iteration x = J x - b, for A = J - 1 where J is a contraction, such as the Jacobian at a fixed
    point: an implicit gradient by the method of Christianson (1994)."""

    def goes_on(state: tuple[Any, ...]) -> Any:
        _, r, before, steps = state
        return (euclidean_norm(r) > target) & (euclidean_norm(r) < before) & (steps < most)

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        x, r, _, steps = state
        return x - r, r + product(r), euclidean_norm(r), steps + 1

    x, _, _, steps = lax.while_loop(goes_on, step, (x, r, jnp.asarray(jnp.inf, r.dtype), steps))
    return x, steps


METHODS: dict[str, Callable[[Product, Any, Any, Any, Any, int], tuple[Any, Any]]] = {
    "cg": _conjugate_gradients,
    "gmres": _gmres,
    "iterate": _iterate,
}
"""Each improves `x`, given its residual, and adds to the number of products. The last one is for fixed points."""
