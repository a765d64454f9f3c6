"""The ops behind functions of complex matrices, given by their real and imaginary parts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..graph import Array, op
from ..graph.facts import unknown
from .axes import rowwise
from .decompositions import cofactors
from .factors import inverse, nan_of_matrix


@op(multiple_results=True, axes=rowwise("(n,n)->(n,n)"), cost=unknown, precision="high")
def complex_inv(real: Array, imaginary: Array, /) -> tuple[jax.Array, jax.Array]:
    """The parts of the inverses of matrices."""
    a = lax.complex(real, imaginary)
    (y,) = nan_of_matrix(a, inverse(a))
    return lax.real(y), lax.imag(y)


@op(multiple_results=True, axes=rowwise("(n,n)->()"), cost=unknown, precision="high")
def complex_det(real: Array, imaginary: Array, /) -> tuple[jax.Array, jax.Array]:
    """The parts of the determinants of matrices."""
    a = lax.complex(real, imaginary)
    (y,) = nan_of_matrix(a, jnp.linalg.det(a))
    return lax.real(y), lax.imag(y)


@op(multiple_results=True, axes=rowwise("(n,n)->(n,n)"), cost=unknown, precision="high")
def complex_cofactor(*parts: Array) -> tuple[jax.Array, jax.Array]:
    """The parts of the cofactors of matrices, from the parts of these and of directions, as `batch_cofactor`."""
    y = cofactors(*[lax.complex(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)])
    return lax.real(y), lax.imag(y)


@op(multiple_results=True, axes=rowwise("(n,n)->()"), cost=unknown, precision="high")
def complex_slogdet(real: Array, imaginary: Array, /) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The parts of the signs of the determinants of matrices, and the logarithms of their absolute values."""
    a = lax.complex(real, imaginary)
    results: Any = nan_of_matrix(a, *jnp.linalg.slogdet(a))
    sign, size = results
    return lax.real(sign), lax.imag(sign), size


@op(multiple_results=True, axes=rowwise("(n,n)->(n)"), cost=unknown, precision="high")
def hermitian_eigh(real: Array, imaginary: Array, /) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The eigenvalues, ascending, of the Hermitian parts of matrices, and the parts of the eigenvectors, as columns. At
    which angle a vector is, is arbitrary, and taken not to matter."""
    w, v = jnp.linalg.eigh(lax.complex(real, imaginary), symmetrize_input=True)
    return w, lax.real(v), lax.imag(v)


@op(multiple_results=True, axes=rowwise("(n,n)->(n)"), cost=unknown, precision="high")
def general_eig(*parts: Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The parts of the eigenvalues of matrices and of their right eigenvectors, as columns, from the parts of the
    matrices, or from real matrices. How long and at which angle a vector is, is arbitrary, and taken not to matter."""
    w, v = jnp.linalg.eig(lax.complex(*parts) if len(parts) > 1 else parts[0])
    return lax.real(w), lax.imag(w), lax.real(v), lax.imag(v)
