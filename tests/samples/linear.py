"""Samples of the family `linear`."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from . import Sample, fixed, integers, matrix, real, sample


def swap(x):
    return jnp.swapaxes(x, -1, -2)


def definite(*shape):
    def draw(rng):
        x = rng.standard_normal(shape)
        return x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])
    return draw


def symmetric(x):
    return (x + swap(x)) / 2


INSIDE = integers(0, 3, 2, 2)

SAMPLES: list[Sample] = [
    sample("batch_matmul", real(3, 1, 0), real(0, 2), ref=jnp.matmul, note="empty"),
    sample("batch_matmul", real(2, 3), real(3, 2), note="2-d", ref=lambda a, b: a @ b, matmul_precision="highest"),
    sample("batch_matmul", real(3, 2), real(3, 4), note="2-d", ref=lambda a, b: a.T @ b, transpose_a=True),
    sample("batch_matmul", real(2, 3), real(4, 3), note="2-d", ref=lambda a, b: a @ b.T, transpose_b=True),
    sample("batch_matmul", real(3, 2), real(4, 3), note="2-d",
           ref=lambda a, b: a.T @ b.T, transpose_a=True, transpose_b=True),
    sample("batch_matmul", real(2, 2, 3), real(2, 3, 1), note="3-d", ref=lambda a, b: a @ b),
    sample("batch_matmul", real(2, 3, 2), real(2, 1, 3), note="3-d",
           ref=lambda a, b: swap(a) @ swap(b), transpose_a=True, transpose_b=True),
    sample("batch_matmul", real(2, 1, 2, 3), real(3, 3, 2), note="broadcast", ref=lambda a, b: a @ b),
    sample("batch_matmul", real(1, 3, 2), real(2, 3, 2), note="broadcast",
           ref=lambda a, b: swap(a) @ b, transpose_a=True),
    sample("batch_matmul", real(2, 2, 3), real(3, 2), note="one matrix", ref=lambda a, b: a @ b),
    sample("batch_matmul", real(2, 2, 3), real(2, 3), note="one matrix", ref=lambda a, b: a @ b.T, transpose_b=True),
    sample("batch_matmul", real(2, 3, 2), real(2, 3), note="one matrix",
           ref=lambda a, b: swap(a) @ b.T, transpose_a=True, transpose_b=True),
    sample("batch_matmul", real(3, 2), real(2, 2, 3), note="one matrix first",
           ref=lambda a, b: a.T @ swap(b), transpose_a=True, transpose_b=True),
    sample("affine", real(2, 3), real(3, 2), real(2), ref=lambda x, w, b: x @ w + b),
    sample("affine", real(2, 3), real(3, 1), note="no bias", ref=lambda x, w: x @ w),
    sample("affine", real(2, 2, 3), real(6, 2), real(2), note="flattened", ref=lambda x, w, b: x.reshape(2, 6) @ w + b),
    sample("affine", real(2, 2, 3), real(3, 2, 2), real(2, 2), base_axis=2,
           ref=lambda x, w, b: jnp.einsum("abi,ijk->abjk", x, w) + b),
    sample("affine", real(2, 2), real(4, 3), base_axis=0, ref=lambda x, w: x.reshape(4) @ w),
    sample("cross", real(2, 3), real(3), ref=jnp.cross),
    sample("cross", real(3, 2), real(3, 1), axis=0, ref=lambda x0, x1: jnp.cross(x0, x1 * jnp.ones((1, 2)), axis=0)),
    sample("dot", real(), real(3), note="0-d", ref=jnp.dot),
    sample("dot", real(3), real(3), note="1-d", ref=jnp.dot),
    sample("dot", real(2, 3), real(3), note="2-d 1-d", ref=jnp.dot),
    sample("dot", real(3), real(3, 2), note="1-d 2-d", ref=jnp.dot),
    sample("dot", real(2, 3), real(3, 2), note="2-d", ref=jnp.dot),
    sample("dot", real(2, 1, 3), real(2, 3, 2), note="3-d", ref=jnp.dot),
    sample("dot", real(3), real(2, 3, 2), note="1-d 3-d", ref=jnp.dot),
    sample("matmul", real(3), real(3), note="1-d", ref=jnp.matmul),
    sample("matmul", real(2, 3), real(3, 2), note="2-d", ref=jnp.matmul),
    sample("matmul", real(2, 2, 3), real(3), note="3-d 1-d", ref=jnp.matmul),
    sample("matmul", real(3), real(2, 3, 2), note="1-d 3-d", ref=jnp.matmul),
    sample("matmul", real(2, 2, 3), real(2, 3, 2), note="3-d", ref=jnp.matmul),
    sample("embed", INSIDE, real(3, 2), ref=lambda i, w: w[i]),
    sample("embed", fixed(0, 2, 2, dtype=np.int32), real(3), note="numbers", ref=lambda i, w: w[i]),
    sample("embed", integers(0, 2), real(2, 1, 2), note="one row", ref=lambda i, w: w[i]),
    sample("embed_filter_grad", real(2, 2, 2), INSIDE, shape=(3, 2),
           ref=lambda g, i: jnp.einsum("abr,abn->rn", (i[..., None] == jnp.arange(3)).astype(g.dtype), g)),
    sample("batch_inv", matrix(2, 3, 3), ref=jnp.linalg.inv),
    sample("batch_inv", matrix(2, 2), note="one", ref=jnp.linalg.inv),
    sample("batch_det", matrix(2, 3, 3), ref=jnp.linalg.det),
    sample("batch_det", matrix(2, 2), note="one", ref=jnp.linalg.det),
    sample("batch_det", matrix(4, 4), note="larger", ref=jnp.linalg.det),
    sample("batch_det", fixed([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]), note="singular",
           ref=lambda x: x[0] @ jnp.cross(x[1], x[2])),
    sample("batch_det", fixed([0.0, 2.0, 3.0], [0.0, 4.0, 6.0], [0.0, 0.0, 0.0]), note="of rank 1",
           ref=lambda x: x[0] @ jnp.cross(x[1], x[2])),
    sample("batch_logdet", matrix(2, 3, 3), ref=lambda x: jnp.log(jnp.abs(jnp.linalg.det(x)))),
    sample("batch_logdet", fixed([1.0, 3.0], [2.0, 0.5]), note="negative",
           ref=lambda x: jnp.log(jnp.abs(jnp.linalg.det(x)))),
    sample("batch_cholesky", definite(2, 3, 3), ref=lambda x: jnp.linalg.cholesky(symmetric(x))),
    sample("batch_cholesky", definite(2, 2), upper=True, ref=lambda x: jnp.linalg.cholesky(symmetric(x)).T),
]
