"""Linear algebra."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.scipy.linalg as scipy_linalg
from jax import lax

from .rows import OTHER, SECOND, SQUARE, SYMMETRIC, TALL, VECTOR, WIDE, X, Y, row, rows_of

ROWS = [
    *rows_of(jnp.linalg, "jnp.linalg.", "cholesky cond det eigh eigvalsh inv slogdet matrix_norm matrix_rank "
             "matrix_transpose trace diagonal", SYMMETRIC),
    *rows_of(jnp.linalg, "jnp.linalg.", "svdvals vector_norm", TALL),
    *rows_of(jnp.linalg, "jnp.linalg.", "pinv", TALL),
    *rows_of(jnp.linalg, "jnp.linalg.", "matmul solve tensordot", SQUARE, SECOND),
    *rows_of(jnp.linalg, "jnp.linalg.", "cross", SQUARE, SECOND),
    *rows_of(jnp, "jnp.", "dot inner kron matmul outer tensordot vdot vecdot cross", SQUARE, SECOND),
    row("jnp.linalg.qr", lambda a: jnp.linalg.qr(a), SQUARE),
    row("jnp.linalg.qr(tall)", lambda a: jnp.linalg.qr(a), TALL),
    row("jnp.linalg.qr(complete)", lambda a: jnp.linalg.qr(a, mode="complete")[1], TALL, opaque=1),
    row("jnp.linalg.qr(r)", lambda a: jnp.linalg.qr(a, mode="r"), TALL),
    row("jnp.linalg.svd", lambda a: jnp.linalg.svd(a, full_matrices=False), TALL),
    row("jnp.linalg.svd(wide)", lambda a: jnp.linalg.svd(a, full_matrices=False)[1], WIDE),
    row("jnp.linalg.svd(full)", lambda a: jnp.linalg.svd(a)[1], TALL, orders=0, opaque=1),
    row("jnp.linalg.lstsq", lambda a: jnp.linalg.lstsq(a, jnp.ones(4))[0], TALL),
    row("jnp.linalg.matrix_power", lambda a: jnp.linalg.matrix_power(a, 3) + jnp.linalg.matrix_power(a, -1), SQUARE),
    row("jnp.linalg.multi_dot", lambda a, b: jnp.linalg.multi_dot([a, b, a]), SQUARE, SECOND),
    row("jnp.linalg.norm(nuc)", lambda a: jnp.linalg.norm(a, "nuc") + jnp.linalg.norm(a, 2), SQUARE),
    row("jnp.linalg.outer", lambda a: jnp.linalg.outer(a[0], a[1]), SQUARE),
    row("jnp.linalg.tensorinv", lambda a: jnp.linalg.tensorinv(a, ind=1), SQUARE),
    row("jnp.linalg.tensorsolve", lambda a: jnp.linalg.tensorsolve(a, a[0]), SQUARE),
    row("jnp.linalg.vecdot", lambda a, b: jnp.linalg.vecdot(a, b) + jnp.matvec(a, b[0]) * jnp.vecmat(a[0], b), SQUARE,
        SECOND),
    row("jnp.einsum", lambda a, b: jnp.einsum("ij,jk,ik->k", a, b, a) * jnp.einsum("ii->i", b), SQUARE, SECOND),
    row("jnp.linalg.det(batch)", lambda a: jnp.linalg.det(jnp.stack([a, a @ a])), SQUARE),
    row("jax.scipy.linalg.cho_solve", lambda a, b: scipy_linalg.cho_solve(
        scipy_linalg.cho_factor(a + a.T), b), SYMMETRIC, SECOND),
    row("jax.scipy.linalg.lu", lambda a: scipy_linalg.lu(a), SQUARE),
    row("jax.scipy.linalg.lu_factor", lambda a: scipy_linalg.lu_factor(a)[0], SQUARE),
    row("jax.scipy.linalg.lu_solve", lambda a, b: scipy_linalg.lu_solve(scipy_linalg.lu_factor(a), b), SQUARE, SECOND),
    row("jax.scipy.linalg.solve", lambda a, b: scipy_linalg.solve(a, b, assume_a="pos"), SYMMETRIC, SECOND,
        opaque=1),
    row("jax.scipy.linalg.solve_triangular", lambda a, b: scipy_linalg.solve_triangular(a, b, trans=1, lower=True)
        + scipy_linalg.solve_triangular(a, b, unit_diagonal=True), SQUARE, SECOND),
    row("jax.scipy.linalg.expm", lambda a: scipy_linalg.expm(a), SECOND),
    row("jax.scipy.linalg.block_diag", lambda a, b: scipy_linalg.block_diag(a, b), SQUARE, SECOND),
    row("jax.scipy.linalg.toeplitz", lambda x: scipy_linalg.toeplitz(x) ** 2, VECTOR),
    row("lu(wide)", lambda a: lax.linalg.lu(a)[0], WIDE),
    row("lu(tall)", lambda a: lax.linalg.lu(a)[0], TALL),
    row("cholesky_update", lambda a, x: lax.linalg.cholesky_update(jnp.linalg.cholesky(a).T, x[0]), SYMMETRIC, SECOND,
        orders=0, opaque=1),  # JAX has no derivative of it
    row("lax.batch_matmul", lambda a, b: lax.batch_matmul(a[None], b[None]) * lax.dot(a, b), SQUARE, SECOND),
    row("lax.dot_general", lambda a, b: lax.dot_general(a, b, (((0,), (0,)), ((), ()))) ** 2, X, Y),
    row("lax.custom_linear_solve", lambda a, b: jax.scipy.sparse.linalg.cg(a, b[0], tol=1e-14)[0], SYMMETRIC, SECOND,
        opaque=1),
    row("tridiagonal_solve", lambda d, b: lax.linalg.tridiagonal_solve(d * 0.1, d + 9, d * 0.2, b[:, None]), VECTOR,
        OTHER, opaque=1),
]  # fmt: skip
