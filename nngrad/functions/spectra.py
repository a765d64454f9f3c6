"""What decompositions are made of, in float32 or float64: eigenvalues, singular values and their vectors, and QR."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from ..graph import Array, Function, op
from ..graph.axes import AxisMap, Places


def _rows_alone(f: Function) -> tuple[Places, ...]:
    return ((*range(f.inputs[0].ndim - 2), None, None),)


def _factor_cost(f: Function) -> int:
    (*batch, m, n) = f.inputs[0].shape
    return 8 * math.prod(batch) * m * n * min(m, n)


_matrices = AxisMap(places=_rows_alone, led=lambda f, size, shape: {})


@op(multiple_results=True, axes=_matrices, cost=_factor_cost)
def eigh(x: Array, /) -> tuple[jax.Array, jax.Array]:
    """The eigenvalues, ascending, and the eigenvectors of the symmetric parts of matrices.

    Args:
        x: (*batch, n, n), float32 or float64.

    Returns:
        (*batch, n), and (*batch, n, n) with the vectors in the columns.
    """
    w, v = jnp.linalg.eigh(x, symmetrize_input=True)
    return w, v


@op(multiple_results=True, axes=_matrices, cost=_factor_cost)
def svd(x: Array, /) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The singular vectors and values of matrices, the largest values first.

    Args:
        x: (*batch, m, n), float32 or float64.

    Returns:
        (*batch, m, k), (*batch, k) and (*batch, k, n), with k the smaller of m and n.
    """
    u, s, vh = jnp.linalg.svd(x, full_matrices=False)
    return u, s, vh


@op(multiple_results=True, axes=_matrices, cost=_factor_cost)
def tall_qr(x: Array, /) -> tuple[jax.Array, jax.Array]:
    """The factors `x = q r` of matrices that have at least as many rows as columns.

    Args:
        x: (*batch, m, n), float32 or float64.

    Returns:
        (*batch, m, n) with orthonormal columns, and an upper triangle, (*batch, n, n).
    """
    q, r = jnp.linalg.qr(x)
    return q, r


@op(elementwise=True, diagonal=True, reads=1)
def differentiated_if(x: Array, factor: Array, /) -> jax.Array:
    """`x` itself. What is differentiated through it is multiplied by `factor`, which is 1, or NaN where a derivative is
    not known.

    Args:
        x: Floating.
        factor: Of the same shape.
    """
    same: jax.Array = x
    return same
