"""Samples of decompositions of matrices."""

import jax
import jax.numpy as jnp
import numpy as np

from . import fixed, matrix, real, sample


def swap(x):
    return jnp.swapaxes(x, -1, -2)


def minors(x):
    """Cofactors by their definition."""
    n = x.shape[-1]
    rest = [np.array([j for j in range(n) if j != i]) for i in range(n)]
    return jnp.stack([jnp.stack([(-1) ** (i + j) * jnp.linalg.det(x[..., rest[i], :][..., rest[j]])
                                 for j in range(n)], -1) for i in range(n)], -2)


def polarized(x, h):
    """What is linear in each of both, in the cofactors of the sum of 3x3 matrices, which are quadratic."""
    return minors(x + h) - minors(x) - minors(h)


def series(x):
    """The exponential by its power series."""
    def add(so_far, k):
        total, term = so_far[0], so_far[1] @ x / k
        return (total + term, term), None

    one = jnp.broadcast_to(jnp.eye(x.shape[-1]), x.shape)
    return jax.lax.scan(add, (one, one), jnp.arange(1.0, 40.0))[0][0]


SAMPLES = [
    sample("batch_cofactor", matrix(2, 3, 3), ref=minors),
    sample("batch_cofactor", fixed([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]), real(3, 3), ref=polarized,
           note="along a direction"),
    sample("batch_cofactor", real(3, 3), real(3, 3), real(3, 3), ref=lambda x, g, h: polarized(g, h), orders=1,
           note="along two directions"),
    sample("batch_eigh", matrix(2, 3, 3), ref=lambda x: tuple(jnp.linalg.eigh((x + jnp.swapaxes(x, -1, -2)) / 2))),
    sample("batch_svd", matrix(2, 2, 2), ref=lambda x: tuple(jnp.linalg.svd(x, full_matrices=False))),
    sample("batch_svd", real(3, 2), ref=lambda x: tuple(jnp.linalg.svd(x, full_matrices=False)), note="tall"),
    sample("batch_svd", real(2, 3), ref=lambda x: tuple(jnp.linalg.svd(x, full_matrices=False)), note="wide"),
    sample("batch_qr", real(2, 3, 2), ref=lambda x: tuple(jnp.linalg.qr(x))),
    sample("batch_qr", real(2, 3), note="wide",
           ref=lambda x: (jnp.linalg.qr(x[:, :2])[0], jnp.linalg.qr(x[:, :2])[0].T @ x)),
    sample("batch_pinv", real(2, 3, 2), ref=lambda x: jnp.linalg.inv(swap(x) @ x) @ swap(x)),
    sample("batch_pinv", real(2, 3), ref=lambda x: swap(x) @ jnp.linalg.inv(x @ swap(x)), note="wide"),
    sample("batch_pinv", fixed([3.0, 0.0, 0.0], [0.0, 0.25, 0.0]), rtol=0.1, orders=0,
           ref=lambda x: jnp.zeros((3, 2)).at[0, 0].set(1 / 3)),
    sample("batch_lu", matrix(2, 3, 3), ref=jax.vmap(jax.scipy.linalg.lu)),
    sample("batch_lu", real(4, 2), ref=jax.scipy.linalg.lu, note="tall"),
    sample("batch_lu", real(2, 4), ref=jax.scipy.linalg.lu, note="wide"),
    sample("batch_expm", real(2, 2, 2), ref=series),
    sample("batch_expm", fixed([0.0, 1.0], [0.0, 0.0]), ref=series, note="defective"),
    sample("batch_expm", real(2, 2), real(2, 2), note="along a direction",
           ref=lambda x, h: jax.jvp(series, (x,), (h,))[1]),
]
