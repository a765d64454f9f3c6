"""Samples of the family `contractions`."""

from __future__ import annotations

import jax.numpy as jnp

from . import Sample, real, sample

SAMPLES: list[Sample] = [
    sample("einsum", real(2, 3), real(3, 2), equation="ij,jk->ik", ref=lambda a, b: a @ b),
    sample("einsum", real(2, 2), equation="ii", ref=jnp.trace),
    sample("einsum", real(3, 3), equation="ii->i", ref=jnp.diagonal),
    sample("einsum", real(2, 3), equation="ba", ref=jnp.transpose),
    sample("einsum", real(2, 3), equation="ij->j", ref=lambda x: x.sum(0)),
    sample("einsum", real(2, 2, 3), real(3), equation="iij,j->i", ref=lambda a, b: jnp.diagonal(a).T @ b),
    sample("einsum", real(2, 2), real(2), real(2, 2), equation="ij,j,jk->ik", ref=lambda a, b, c: a @ jnp.diag(b) @ c),
    sample("einsum", real(1, 2, 2), real(3, 2, 1), equation="...ij,...jk->...ik", note="broadcast",
           ref=lambda a, b: a @ b),
    sample("einsum", real(2, 2), real(3, 1, 2), equation="...i,j...->j...i", note="ellipsis",
           ref=lambda a, b: b[..., None] * a),
    sample("einsum", real(2, 1), real(3, 2), equation="ij,jk->ik", note="size 1", ref=lambda a, b: a * b.sum(0)),
    sample("tensordot", real(2, 2, 3), real(2, 3, 2), ref=jnp.tensordot),
    sample("tensordot", real(2, 3), real(3, 2, 2), axes=((0, 1), (2, 0)),
           ref=lambda a, b: jnp.tensordot(a, b, ((0, 1), (2, 0)))),
    sample("bilinear", real(2, 2), real(2, 1, 2), real(2, 2, 2), real(2, 2), real(2, 2), real(2),
           ref=lambda x, y, w, v1, v2, b: jnp.einsum("bj,bk,jko->bo", x, y[:, 0], w) + x @ v1 + y[:, 0] @ v2 + b),
    sample("contraction", real(2, 3), real(3, 2), terms=((0, 1), (1, 2)), output=(2, 0), ref=lambda a, b: (a @ b).T,
           matmul_precision="highest"),
    sample("contraction", real(2), terms=((0,),), output=(0, 0), ref=jnp.diag),
    sample("contraction", real(2, 2), real(2), terms=((0, 1), (1,)), output=(1, 0, 1),
           ref=lambda a, b: jnp.einsum("ij,j,jk->jik", a, b, jnp.eye(2))),
]
