"""Matrix factors and solves with them: the ops behind `batch_solve` and `triangular_solve`.

The factors only speed up a solve; no gradient flows through them. A solve also takes the matrix, and its rule gives the
whole dependence on it. So every derivative of a solve is made of solves with the same factors.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..graph import Array, Function, op
from ..graph.axes import AxisMap, Places
from .arithmetic import widened
from .axes import rowwise

_MATRICES = rowwise("(m,n)->(m,n)")


def check_square(x: Any, name: str = "x") -> None:
    """Raise a ValueError unless `x` holds square matrices."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"{name} must hold square matrices in its last two axes, got shape {x.shape}")


def nan_of_matrix(a: Any, *results: Any) -> tuple[Any, ...]:
    """The results of elimination, with NaN for each matrix that contains one. CUDA's elimination loses NaN: it finds
    pivots by comparison, and gives zeros for a matrix of NaN."""
    lost = jnp.isnan(a).any((-2, -1))
    return tuple([jnp.where(lost.reshape(*lost.shape, *(1,) * (y.ndim - lost.ndim)), math.nan, y) for y in results])


MOST_EXCHANGES = 16
"""Up to this many rows a permutation is computed element by element, fused with what reads it. JAX's loop over the
exchanges is ten kernels, one of them a scatter: without it inverses compile in 0.6 of the time, and 256 of 8 or 16 rows
take 0.95 or 0.85. From 24 rows on it would take longer."""


def eliminated(a: Any) -> tuple[Any, Any, Any]:
    """The LU factors of matrices (*batch, m, n), with which row each was exchanged, and the permutation of rows."""
    lu, pivots, permutation = lax.linalg.lu(a)
    if pivots.shape[-1] <= MOST_EXCHANGES:
        permutation = lax.broadcasted_iota(permutation.dtype, permutation.shape, permutation.ndim - 1)
        for k in reversed(range(pivots.shape[-1])):
            row = lax.full_like(permutation, k)
            other = lax.broadcast_in_dim(pivots[..., k], permutation.shape, range(permutation.ndim - 1))
            swapped = lax.select(lax.eq(permutation, other), row, permutation)
            permutation = lax.select(lax.eq(permutation, row), other, swapped)
    return lu, pivots, permutation


def inverse(a: Any) -> Any:
    """The inverses of matrices (*batch, n, n)."""
    lu, _, permutation = eliminated(a)
    ones = jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape)
    return lu_solve.forward(ones, lu, permutation, None, False)


def _factor_cost(f: Function) -> int:
    shape = f.inputs[0].shape
    return math.prod(shape) * shape[-1]


@op(multiple_results=True, axes=_MATRICES, cost=_factor_cost, precision="high")
def lu_factor(a: Array, /) -> tuple[jax.Array, jax.Array]:
    """The LU factors of matrices (*batch, n, n), with row exchanges: `a[permutation] = L U`.

    One array holds L below the diagonal, without its ones, and U; the permutation of rows is (*batch, n).
    """
    a = widened(a)
    lu, _, permutation = eliminated(a)
    return *nan_of_matrix(a, lu), permutation


@op(type_name="LUDecomposition", multiple_results=True, cost=_factor_cost, axes=AxisMap(places=_MATRICES.places))
def lu_decomposition(a: Array, /) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The LU factors of matrices (*batch, m, n), as `lu_factor` but differentiable; pivots precede the permutation."""
    lu, pivots, permutation = eliminated(a)
    return *nan_of_matrix(a, lu), pivots, permutation


def _columns_and_rows(f: Function) -> tuple[Places, ...]:
    """Right-hand sides keep their leading axes and columns, matrices their leading axes."""
    ndim = f.inputs[0].ndim
    leading = [tuple(range(ndim - 2)) for _ in f.inputs[1:]]
    matrices = [(*places, *(None,) * (x.ndim - len(places))) for places, x in zip(leading, f.inputs[1:], strict=True)]
    return ((*range(ndim - 2), None, ndim - 1), *matrices)


def _solve_cost(f: Function) -> int:
    return 2 * f.specs[0].size * f.specs[0].shape[-2]


_solve_axes = AxisMap(places=_columns_and_rows, leading=lambda f, size, shape: {})


@op(linear=True, reads=3, axes=_solve_axes, cost=_solve_cost, precision="high")
def lu_solve(b: Array, lu: Array, permutation: Array, a: Array, /, transposed: bool = False) -> jax.Array:
    """`x`, (*batch, n, m), with `a x = b`, or `a' x = b` if `transposed`, from the factors that `lu_factor` returns.
    The matrices `a` only serve the gradient."""
    y = widened(b)
    if transposed:
        y = _by_triangle(lu, y, lower=False, transposed=True, unit_diagonal=False)
        y = _by_triangle(lu, y, lower=True, transposed=True, unit_diagonal=True)
        y = _reordered(y, jnp.argsort(permutation, axis=-1))
    else:
        y = _by_triangle(lu, _reordered(y, permutation), lower=True, transposed=False, unit_diagonal=True)
        y = _by_triangle(lu, y, lower=False, transposed=False, unit_diagonal=False)
    return lax.convert_element_type(y, b.dtype)


def _reordered(b: Any, order: Any) -> Any:
    return jnp.take_along_axis(b, order[..., None], axis=-2, mode="promise_in_bounds")


def _by_triangle(a: Any, b: Any, lower: bool, transposed: bool, unit_diagonal: bool) -> Any:
    return lax.linalg.triangular_solve(
        a, b, left_side=True, lower=lower, transpose_a=transposed, unit_diagonal=unit_diagonal
    )


@op(linear=True, axes=_solve_axes, cost=_solve_cost, precision="high")
def solve_triangle(
    b: Array, a: Array, /, lower: bool = True, transposed: bool = False, unit_diagonal: bool = False
) -> jax.Array:
    """`x`, (*batch, n, m), with `t x = b`, or `t' x = b` if `transposed`, where `t` is a triangle of `a`, perhaps with
    a unit diagonal."""
    y = _by_triangle(widened(a), widened(b), lower, transposed, unit_diagonal)
    return lax.convert_element_type(y, b.dtype)


@op(multiple_results=True, axes=_MATRICES, cost=_factor_cost, precision="high")
def tall_qr(x: Array, /) -> tuple[jax.Array, jax.Array]:
    """The factors `x = q r` of matrices with at least as many rows as columns; 16-bit ones are factored in float32."""
    q, r = jnp.linalg.qr(widened(x))
    return lax.convert_element_type(q, x.dtype), lax.convert_element_type(r, x.dtype)


@op(elementwise=True, diagonal=True, reads=1)
def differentiated_if(x: Array, factor: Array, /) -> jax.Array:
    """`x` itself. Derivatives through it are multiplied by `factor`: 1, or NaN where a derivative is not known."""
    same: jax.Array = x
    return same
