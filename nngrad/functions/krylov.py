"""Matrix-free linear solvers: conjugate gradients and GMRES.

`jax.scipy.sparse.linalg` has these too. But there JAX always transposes the matrix, which not every function on arrays
allows, and does not count products. Here each method improves an approximation and restarts from its result until the
residual, computed by its definition, is small enough. So rounding errors in a recursively updated residual cannot pass
for convergence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

Product = Callable[[Any], Any]
State = tuple[Any, Any, Any, Any]
"""An approximation, its residual b - A x, the square of the norm of that, and the number of products so far, int32."""


def euclidean_norm(x: Any) -> Any:
    """The Euclidean norm of a vector."""
    return lax.sqrt(jnp.vdot(x, x))


def solved(method: str, product: Product, b: Any, start: Any, target: Any, most: int) -> State:
    """`x` with `A x = b`, by a key of `METHODS`, from `start` or, where that is None, from 0. Iteration ends when the
    norm of the residual is at most `target`, or with the step that reaches `most` products."""
    improve = METHODS[method]

    def goes_on(state: State) -> Any:
        _, _, square, steps = state
        return (lax.sqrt(square) > target) & (steps < most)

    def again(state: State) -> State:
        return improve(product, b, state, target, most)

    zero = jnp.zeros_like(b), b, jnp.vdot(b, b), jnp.int32(0)
    last: State = lax.while_loop(goes_on, again, zero if start is None else at(product, b, start, jnp.int32(1)))
    return last


def at(product: Product, b: Any, x: Any, steps: Any) -> State:
    """The state at an approximation, with its residual by definition."""
    r = b - product(x)
    return x, r, jnp.vdot(r, r), steps


def _conjugate_gradients(product: Product, b: Any, state: State, target: Any, most: int) -> State:
    """Hestenes and Stiefel (1952)."""
    x, r, square, steps = state

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

    x, *_, steps = lax.while_loop(goes_on, step, (x, r, r, square, steps))
    return at(product, b, x, steps + 1)


_BASIS = 30
"""The largest number of basis vectors in GMRES."""


def _gmres(product: Product, b: Any, state: State, target: Any, most: int) -> State:
    """Saad and Schultz (1986): one basis, orthogonalised twice, and the best approximation in it. The basis grows until
    that is good enough, as the factors of its least squares problem tell, which rotations update."""
    x, r, square, steps = state
    n = r.shape[0]
    count = min(_BASIS, n)
    size = lax.sqrt(square)
    smallest = jnp.finfo(r.dtype).eps

    def goes_on(state: tuple[Any, ...]) -> Any:
        k, *_, left = state
        return (k < count) & (left > target) & (steps + k < most)

    def extend(state: tuple[Any, ...]) -> tuple[Any, ...]:
        k, basis, rotations, triangle, _ = state
        w = product(lax.dynamic_index_in_dim(basis, k, keepdims=False))
        before = euclidean_norm(w)
        parts = basis @ w
        w = w - parts @ basis
        rest = basis @ w
        w, parts = w - rest @ basis, rotations @ (parts + rest)
        length = euclidean_norm(w)
        # If the basis spans the Krylov space, only rounding errors are left.
        alone = length <= smallest * before
        top, low = parts[k], jnp.where(alone, 0, length)
        diagonal = lax.sqrt(top * top + low * low)
        cos, sin = jnp.where(diagonal > 0, jnp.stack([top, low]) / diagonal, jnp.array([1, 0], r.dtype))
        rows = lax.dynamic_slice_in_dim(rotations, k, 2)
        rows = jnp.stack([cos * rows[0] + sin * rows[1], cos * rows[1] - sin * rows[0]])
        return (
            k + 1,
            lax.dynamic_update_index_in_dim(basis, w / jnp.where(alone, 1, length), k + 1, 0),
            lax.dynamic_update_slice_in_dim(rotations, rows, k, 0),
            lax.dynamic_update_index_in_dim(triangle, parts.at[k].set(diagonal), k, 1),
            jnp.where(alone, 0, size * lax.abs(rows[1, 0])),
        )

    basis = jnp.zeros((count + 1, n), r.dtype).at[0].set(r / size)
    first = jnp.int32(0), basis, jnp.eye(count + 1, dtype=r.dtype), jnp.zeros((count + 1, count), r.dtype), size
    k, basis, rotations, triangle, _ = lax.while_loop(goes_on, extend, first)
    # Vectors that add nothing, or are not there, get no share of the solution.
    diagonal = jnp.diagonal(triangle)
    infinite = jnp.where(diagonal <= smallest * jnp.max(diagonal), jnp.inf, 0)
    factor = triangle[:-1] + jnp.diag(infinite)
    best = lax.linalg.triangular_solve(factor, size * rotations[:-1, :1], left_side=True)[:, 0]
    return at(product, b, x + best @ basis[:-1], steps + k + 1)


def _iterate(product: Product, b: Any, state: State, target: Any, most: int) -> State:
    """One step of the fixed-point iteration x = J x + b, for A = 1 - J where J is a contraction, such as the Jacobian
    at a fixed point: an implicit gradient by the method of Christianson (1994)."""
    x, r, _, steps = state
    return at(product, b, x + r, steps + 1)


METHODS: dict[str, Callable[[Product, Any, State, Any, int], State]] = {
    "cg": _conjugate_gradients,
    "gmres": _gmres,
    "iterate": _iterate,
}
"""Each improves an approximation of the solution. The last one is for fixed points."""
