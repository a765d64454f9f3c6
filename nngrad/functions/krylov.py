"""Matrix-free linear solvers: conjugate gradients and GMRES.

`jax.scipy.sparse.linalg` has these too. But there JAX always transposes the matrix, which not every function on arrays
allows, and does not count products. Here each method improves an approximation and restarts from its result until the
residual, computed by its definition, is small enough. So rounding errors in a recursively updated residual cannot pass
for convergence.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

Product = Callable[[Any], Any]
State = tuple[Any, Any, Any, Any]
"""An approximation, its residual b - A x, the square of the norm of that, and the number of products so far, int32."""
Method = Callable[[Product, Any, State, Any, int], State]


def euclidean_norm(x: Any) -> Any:
    """The Euclidean norm of a vector."""
    return lax.sqrt(jnp.vdot(x, x))


def solved(method: str, product: Product, b: Any, start: Any, target: Any, most: int) -> State:
    """`x` with `A x = b`, by a key of `METHODS`, from `start` or, where that is None, from 0. Iteration ends when the
    norm of the residual is at most `target`, or with the step that reaches `most` products."""
    zero = jnp.zeros_like(b), b, jnp.vdot(b, b), jnp.int32(0)
    return METHODS[method](product, b, zero if start is None else at(product, b, start, jnp.int32(1)), target, most)


def at(product: Product, b: Any, x: Any, steps: Any) -> State:
    """The state at an approximation, with its residual by definition."""
    r = b - product(x)
    return x, r, jnp.vdot(r, r), steps


def _unfinished(square: Any, steps: Any, target: Any, most: int) -> Any:
    return (lax.sqrt(square) > target) & (steps < most)


def _restarted(improve: Method, product: Product, b: Any, state: State, target: Any, most: int) -> State:
    """Approximations that a method improves until the residual is small enough."""
    last: State = lax.while_loop(
        lambda state: _unfinished(*state[2:], target, most), lambda state: improve(product, b, state, target, most),
        state,
    )  # fmt: skip
    return last


def _conjugate_gradients(product: Product, b: Any, state: State, target: Any, most: int) -> State:
    """Hestenes and Stiefel (1952). Where the updated residual is small enough, the next product is with x, for the
    residual by definition, from which it goes on if need be. So one loop holds one product, which XLA compiles once."""
    x, r, square, steps = state

    def goes_on(state: tuple[Any, ...]) -> Any:
        _, _, _, square, steps, unsure = state
        return unsure | _unfinished(square, steps, target, most)

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        x, r, p, square, steps, unsure = state
        q = product(jnp.where(unsure, x, p))
        rate = square / jnp.vdot(p, q)
        r = jnp.where(unsure, b - q, r - rate * q)
        after = jnp.vdot(r, r)
        p, x = jnp.where(unsure, r, r + (after / square) * p), jnp.where(unsure, x, x + rate * p)
        return x, r, p, after, steps + 1, ~unsure & ~_unfinished(after, steps + 1, target, most)

    x, r, _, square, steps, _ = lax.while_loop(goes_on, step, (x, r, r, square, steps, jnp.bool_(False)))
    return x, r, square, steps


_BASIS = 30
"""The largest number of basis vectors in GMRES."""


def _gmres(product: Product, b: Any, state: State, target: Any, most: int) -> State:
    """Saad and Schultz (1986): one basis, orthogonalised twice, and the best approximation in it. The basis grows until
    that is good enough, as the factors of its least squares problem tell, which rotations update."""
    x, r, square, steps = state
    rows_at = functools.partial(lax.dynamic_slice_in_dim, allow_negative_indices=False)
    put = functools.partial(lax.dynamic_update_slice_in_dim, allow_negative_indices=False)
    n = r.shape[0]
    count = min(_BASIS, n)
    size = lax.sqrt(square)
    smallest = jnp.finfo(r.dtype).eps

    def goes_on(state: tuple[Any, ...]) -> Any:
        k, _, rotations, _ = state
        left = size * lax.abs(rows_at(rotations, k, 1)[0, 0])
        return (k < count) & (left > target) & (steps + k < most)

    def extend(state: tuple[Any, ...]) -> tuple[Any, ...]:
        k, basis, rotations, triangle = state
        w = product(rows_at(basis, k, 1)[0])
        parts = basis @ w
        w = w - parts @ basis
        rest = basis @ w
        w, parts = w - rest @ basis, parts + rest
        length = euclidean_norm(w)
        # If the basis spans the Krylov space, only rounding errors are left.
        alone = length <= smallest * euclidean_norm(parts)
        column = rotations @ parts
        top, low = rows_at(column, k, 1)[0], jnp.where(alone, 0, length)
        diagonal = lax.sqrt(top * top + low * low)
        cos, sin = jnp.where(diagonal > 0, jnp.stack([top, low]) / diagonal, jnp.array([1, 0], r.dtype))
        rows = rows_at(rotations, k, 2)
        rows = jnp.stack([cos * rows[0] + sin * rows[1], cos * rows[1] - sin * rows[0]])
        column = jnp.where(jnp.arange(count + 1) == k, diagonal, column)
        return (
            k + 1,
            put(basis, (w / jnp.where(alone, 1, length))[None], k + 1, 0),
            put(rotations, rows, k, 0),
            put(triangle, column[:, None], k, 1),
        )

    basis = jnp.zeros((count + 1, n), r.dtype).at[0].set(r / size)
    first = jnp.int32(0), basis, jnp.eye(count + 1, dtype=r.dtype), jnp.zeros((count + 1, count), r.dtype)
    k, basis, rotations, triangle = lax.while_loop(goes_on, extend, first)
    # Vectors that add nothing, or are not there, get no share of the solution.
    diagonal, triangle = jnp.eye(count, dtype=bool), triangle[:-1]
    least = smallest * jnp.max(triangle, initial=0, where=diagonal)
    factor = jnp.where(diagonal & (triangle <= least), jnp.inf, triangle)
    best = lax.linalg.triangular_solve(factor, size * rotations[:-1, :1], left_side=True)[:, 0]
    return at(product, b, x + jnp.pad(best, (0, 1)) @ basis, steps + k + 1)


def _iterate(product: Product, b: Any, state: State, target: Any, most: int) -> State:
    """One step of the fixed-point iteration x = J x + b, for A = 1 - J where J is a contraction, such as the Jacobian
    at a fixed point: an implicit gradient by the method of Christianson (1994)."""
    x, r, _, steps = state
    return at(product, b, x + r, steps + 1)


METHODS: dict[str, Method] = {
    "cg": _conjugate_gradients,
    "gmres": functools.partial(_restarted, _gmres),
    "iterate": functools.partial(_restarted, _iterate),
}
"""Each improves an approximation of the solution until it is good enough. The last one is for fixed points."""
