"""The ops behind the decompositions, in float32 or float64: eigenvalues, singular values and their vectors."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from ..graph import Array, Function, op
from ..graph.arguments import DTypeName, Shape
from .axes import rowwise


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


@op(elementwise=True, diagonal=True, broadcasts=True)
def over_gaps(x0: Array, x1: Array, /) -> jax.Array:
    """`x0 / x1`. Its derivatives are quotients by `x1` again and never by its powers, which may over- or underflow."""
    y: jax.Array = x0 / x1
    return y


@op(elementwise=True, diagonal=True, broadcasts=True)
def vanishing(x0: Array, x1: Array, /) -> jax.Array:
    """`x0 * x1` where `x0` is 0, even if `x1` is infinite or NaN: zeros that have derivatives."""
    return jnp.zeros(jnp.broadcast_shapes(x0.shape, x1.shape), x0.dtype)


@op(elementwise=True, diagonal=True)
def unknown_after(x: Array, where: Array, /, orders: int) -> jax.Array:
    """Zeros, with zeros as derivatives of the first `orders` orders; further ones are NaN where `where` holds."""
    return jnp.zeros_like(x)


@op
def arbitrary(shape: Shape, number: int, dtype: DTypeName) -> jax.Array:
    """Numbers between -1 and 1 that satisfy no equation by chance; others for another `number`."""
    count = math.prod(shape)
    return jnp.sin(jnp.arange(1, count + 1) + 0.618 * (number + 1)).astype(dtype).reshape(shape)
