"""Backward rules of matrix products, inverses and factors."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import nngrad.functions as F
from nngrad.functions.contractions import contraction_like
from nngrad.functions.operands import Operand, reshaped
from nngrad.graph import Function, Variable

from .batching import batched
from .rules import backward, gradients


def transposed(x: Variable) -> Variable:
    """`x` with the matrices in its last two axes transposed."""
    n = x.ndim
    return F.transpose(x, axes=(*range(n - 2), n - 1, n - 2))


@backward(F.batch_matmul)
def batch_matmul_backward(f: Function, gy: Variable) -> tuple[Variable, Variable]:
    """y = a b: ga = gy b', gb = a' gy, each as a product with transpose flags"""
    a, b = f.inputs
    ta, tb, matmul_precision = f.arguments
    product = functools.partial(F.batch_matmul, matmul_precision=matmul_precision)
    ga = product(b, gy, tb, True) if ta else product(gy, b, False, not tb)
    if b.ndim == 2 and a.ndim > 2 and not ta:
        # One matrix for a whole batch: the sum over the batch is part of the product.
        rows, row, column = tuple(range(a.ndim - 1)), a.ndim - 1, a.ndim
        output = (column, row) if tb else (row, column)
        return ga, contraction_like(f, (a, gy), ((*rows, row), (*rows, column)), output)
    gb = product(gy, a, True, ta) if tb else product(a, gy, not ta, False)
    return F.sum_to(ga, shape=a.shape), F.sum_to(gb, shape=b.shape)


@batched(F.batch_matmul)
def batch_matmul_batched(f: Function, operands: Sequence[Operand]) -> Variable | None:
    """As few products as possible: if one side has only matrix axes, all rows form a single product"""
    a, b = operands
    ta, tb, matmul_precision = f.arguments
    product = functools.partial(F.batch_matmul, matmul_precision=matmul_precision)
    rows, columns = a.x.ndim - (1 if ta else 2), b.x.ndim - (2 if tb else 1)
    wide_a = a._replace(value=a.widened(thin=[i for i in range(a.x.ndim) if i == rows or i < a.x.ndim - 2]))
    wide_b = b._replace(value=b.widened(thin=[i for i in range(b.x.ndim) if i == columns or i < b.x.ndim - 2]))
    if not b.lead and (not a.lead or b.x.ndim == 2):
        return product(wide_a.value, wide_b.value, ta, tb)
    if a.lead and b.lead:
        if b.x.ndim == 2 and a.x.ndim > 2 and not ta:
            flat = reshaped(a.widened(), (*a.size, math.prod(a.x.shape[:-1]), a.x.shape[-1]))
            y = product(flat, wide_b.value, False, tb)
            return reshaped(y, (*a.size, *a.x.shape[:-1], y.shape[-1]))
        ndim = max(a.x.ndim, b.x.ndim)
        return product(wide_a.lined_up(ndim), wide_b.lined_up(ndim), ta, tb)
    if b.lead and a.x.ndim == b.x.ndim == 2:
        return F.transpose(product(wide_b.value, wide_a.value, not tb, not ta), axes=(0, 2, 1))
    return None


gradients(
    F.embed, "The gradient's rows, added where they were taken",
    lambda gy, x0, w: (None, F.embed_filter_grad(gy, x0, shape=w.shape)),
)  # fmt: skip


@backward(F.embed_filter_grad)
def embed_filter_grad_backward(f: Function, gw: Variable) -> tuple[Variable, None]:
    """The gradient's rows at the indices to which they were added"""
    _, x0 = f.inputs
    return F.embed(x0, gw), None


def product(a: Variable, b: Variable, transpose_a: bool = False, transpose_b: bool = False) -> Variable:
    """The matrix product in the derivative of a factor or an inverse, at the device's highest precision: the factors
    are computed so too, and a low-precision product would lose it."""
    y: Variable = F.batch_matmul(a, b, transpose_a, transpose_b, "highest")
    return y


gradients(
    F.batch_inv, "y = inv(x): gx = -y' gy y'", lambda gy, y: -product(product(y, gy, True, False), y, False, True)
)


def per_matrix(number: Variable, x: Variable) -> Variable:
    """`number`, one for each matrix of `x`, with as many axes as `x`."""
    return F.broadcast(F.reshape(number, shape=(*x.shape[:-2], 1, 1)), shape=x.shape)


gradients(F.batch_det, "y = det(x): gx = gy cofactors(x)", lambda gy, x: per_matrix(gy, x) * F.batch_cofactor(x))
gradients(
    F.batch_logdet, "y = log |det(x)|: gx = gy inv(x)'",
    lambda gy, x: per_matrix(gy, x) * transposed(F.batch_inv(x)),
)  # fmt: skip


def half_lower(x: Variable) -> Variable:
    """The lower triangle of each matrix, with its diagonal halved, and zeros above."""
    return F.trilu(x, k=-1, upper=False) + 0.5 * F.matrix_diag(F.matrix_diag_part(x))


@backward(F.batch_cholesky)
def batch_cholesky_backward(f: Function, gy: Variable) -> Variable:
    """x = L L': gx is the symmetric part of inv(L)' P inv(L), P the lower half of L' gL (Murray 2016, eq. 8)"""
    (y,) = f.outputs
    if f.args["upper"]:
        y, gy = transposed(y), transposed(gy)
    inverse = F.batch_inv(y)
    p = half_lower(product(y, gy, True, False))
    gx = product(product(inverse, p, True, False), inverse)
    return 0.5 * (gx + transposed(gx))
