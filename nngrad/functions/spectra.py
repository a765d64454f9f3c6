"""The ops behind the decompositions, in float32 or float64: eigenvalues, singular values and their vectors."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from ..graph import Array, Function, op
from ..graph.axes import rowwise


def _factor_cost(f: Function) -> int:
    (*batch, m, n) = f.inputs[0].shape
    return 8 * math.prod(batch) * m * n * min(m, n)


@op(multiple_results=True, axes=rowwise("(m,n)->(k)"), cost=_factor_cost, precision="high")
def eigh(x: Array, /) -> tuple[jax.Array, jax.Array]:
    """The eigenvalues, ascending, and the eigenvectors, as columns, of the symmetric parts of matrices."""
    w, v = jnp.linalg.eigh(x, symmetrize_input=True)
    return w, v


@op(multiple_results=True, axes=rowwise("(m,n)->(k)"), cost=_factor_cost, precision="high")
def svd(x: Array, /) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The singular vectors and values of matrices, largest values first: `x = u diag(s) vh`."""
    u, s, vh = jnp.linalg.svd(x, full_matrices=False)
    return u, s, vh
