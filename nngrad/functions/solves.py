"""Solve linear systems with dense matrices."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax.numpy as jnp

from ..graph import Array, Variable, composite
from .array import in_dtype
from .factors import check_square, lu_factor, lu_solve, solve_triangle
from .movement import broadcast, reshape, transpose


@composite
def batch_solve(A: Array, B: Array, /, transposed: bool = False) -> Variable:  # noqa: N803 - as it is written
    """`X` with `A X = B` for each matrix in the last two axes of `A`, by LU factorisation.

    Derivatives of any order are solves with the same factorisation. Solves with one `A` for several right-hand sides
    along a leading axis, as in derivatives along several directions, become one solve with more columns.

    Args:
        A: (*batch, n, n). A singular matrix gives values that are infinite or NaN.
        B: (*batch, n, m), or (n,), a vector. Leading axes of both are broadcast together.
        transposed: Whether to solve with each matrix transposed.

    Returns:
        (*batch, n, m); (*batch, n) where `B` is a vector.

    Raises:
        ValueError: The matrices are not square, or the shapes do not fit.
    """

    def solve(a: Variable, b: Variable) -> Variable:
        return lu_solve(b, *lu_factor(a), a, transposed)

    return _solved(A, B, solve)


@composite
def triangular_solve(
    A: Array, B: Array, /, lower: bool = True, transposed: bool = False, unit_diagonal: bool = False  # noqa: N803
) -> Variable:
    """`X` with `T X = B` for each matrix in the last two axes of `A`, where `T` is a triangle of it.

    Args:
        A: (*batch, n, n); elements outside of the triangle are not read.
        B: (*batch, n, m), or (n,), a vector. Leading axes of both are broadcast together.
        lower: Whether `T` is the lower triangle instead of the upper one.
        transposed: Whether to solve with each triangle transposed.
        unit_diagonal: Whether to take the diagonal to be ones, without reading it.

    Returns:
        (*batch, n, m); (*batch, n) where `B` is a vector.

    Raises:
        ValueError: The matrices are not square, or the shapes do not fit.
    """

    def solve(a: Variable, b: Variable) -> Variable:
        return solve_triangle(b, a, lower, transposed, unit_diagonal)

    return _solved(A, B, solve)


def _solved(a: Variable, b: Variable, solve: Callable[[Variable, Variable], Variable]) -> Variable:
    """Apply `solve` to matrices and right-hand sides with the same leading axes, in one floating dtype."""
    check_square(a, "A")
    vector = b.ndim == 1
    if not b.ndim or b.shape[-1 if vector else -2] != a.shape[-1]:
        raise ValueError(f"B must have {a.shape[-1]} rows for A of shape {a.shape}, got shape {b.shape}")
    dtype = jnp.promote_types(a.dtype, b.dtype)
    dtype = dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.promote_types(dtype, jnp.float32)
    a, b = [in_dtype(x, dtype) for x in (a, b)]
    if vector:
        b = reshape(b, shape=(*b.shape, 1))
    if a.ndim == 2 and b.ndim > 2:
        y = _as_columns(b, lambda columns: solve(a, columns))
    else:
        try:
            batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except ValueError:
            raise ValueError(f"leading axes of A, {a.shape[:-2]}, and B, {b.shape[:-2]}, do not broadcast") from None
        # A matrix is factored once for all its right-hand sides.
        y = solve(a if a.shape[:-2] == batch else broadcast(a, shape=(*batch, *a.shape[-2:])),
                  b if b.shape[:-2] == batch else broadcast(b, shape=(*batch, *b.shape[-2:])))  # fmt: skip
    return reshape(y, shape=y.shape[:-1]) if vector else y


def _as_columns(b: Variable, solve: Callable[[Variable], Variable]) -> Variable:
    """`solve`, for one matrix, applied to right-hand sides whose leading axes become more columns."""
    *batch, n, m = b.shape
    axes = (b.ndim - 2, *range(b.ndim - 2), b.ndim - 1)
    y = solve(reshape(transpose(b, axes=axes), shape=(n, math.prod(batch) * m)))
    return transpose(reshape(y, shape=(n, *batch, m)), axes=(*range(1, b.ndim - 1), 0, b.ndim - 1))
