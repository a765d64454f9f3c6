"""Backward rules of eigenvalues and singular values and their vectors."""

from __future__ import annotations

import jax.numpy as jnp

import nngrad.functions as F
from nngrad.functions.array import filled_like, zeros_like
from nngrad.functions.factors import differentiated_if
from nngrad.functions.spectra import eigh, svd
from nngrad.graph import Function, Variable

from .linear import per_matrix, product, transposed
from .rules import backward


def column(x: Variable) -> Variable:
    """The vectors of all matrices as columns."""
    return F.reshape(x, shape=(*x.shape, 1))


def row(x: Variable) -> Variable:
    """The vectors of all matrices as rows."""
    return F.reshape(x, shape=(*x.shape[:-1], 1, x.shape[-1]))


def rounding(values: Variable) -> Variable:
    """The size of differences of `values` that rounding explains, for each row."""
    largest = F.max(F.abs(values), axis=-1, keepdims=True)
    return F.unlink(largest * float(8 * values.shape[-1] * jnp.finfo(values.dtype).eps))


def inverse(x: Variable, tolerance: Variable) -> Variable:
    """`1 / x`, and 0 where `|x|` is at most `tolerance`."""
    tiny = F.less_equal(F.abs(x), tolerance)
    return F.where(tiny, zeros_like(x), 1 / F.where(tiny, filled_like(x, 1), x))


def depends(x: Variable, f: Function) -> bool:
    """Whether `x` depends on an output of `f`."""
    waiting, seen = [x], set[int]()
    while waiting:
        above = waiting.pop().parent
        if above is f:
            return True
        if above is not None and above.rank > f.rank and id(above) not in seen:
            seen.add(id(above))
            waiting.extend(above.inputs)
    return False


def where_distinct(values: Variable, tolerance: Variable, x: Variable, needs_nonzero: bool = False) -> Variable:
    """`x`, whose derivatives are made NaN where two of the sorted `values` of its matrix are equal or, on request, one
    is 0: second derivatives there depend on how the values split, which the values alone do not tell."""
    n = values.shape[-1]
    if n > 1:
        gaps = F.abs(values[..., 1:] - values[..., :-1])
        equal = F.max(F.less_equal(gaps, tolerance), axis=-1)
    else:
        equal = zeros_like(values[..., 0])
    if needs_nonzero:
        equal = F.maximum2(equal, F.max(F.less_equal(F.abs(values), tolerance), axis=-1))
    factor = F.where(equal, filled_like(values[..., 0], float("nan")), filled_like(values[..., 0], 1))
    return differentiated_if(x, per_matrix(factor, x))


@backward(eigh)
def eigh_backward(f: Function, gw: Variable, gv: Variable) -> Variable:
    """x = v diag(w) v': gx = v (diag(gw) + (v' gv) / (w_j - w_i)) v', for pairs of eigenvalues that are not equal"""
    w, v = f.outputs
    tolerance = rounding(w)
    safe = where_distinct(w, tolerance, v)
    gaps = inverse(row(w) - column(w), column(tolerance))
    of_vectors = product(product(safe, gaps * product(safe, gv, True, False)), safe, False, True)
    basis = safe if depends(gw, f) else v
    gx = product(basis * row(gw), basis, False, True) + of_vectors
    return 0.5 * (gx + transposed(gx))


@backward(svd)
def svd_backward(f: Function, gu: Variable, gs: Variable, gvh: Variable) -> Variable:
    """x = u s v': gx = u (gs + (a + a') s + s (b + b')) v' with a = u' gu / d, b = v' gv / d and d = s_j^2 - s_i^2;
    where x is not square, also what is orthogonal to u of gu inv(s) v', or to v of u inv(s) gv'"""
    (x,), (u, s, vh) = f.inputs, f.outputs
    m, n = x.shape[-2:]
    tolerance = rounding(s)
    u_safe, vh_safe = (where_distinct(s, tolerance, y, needs_nonzero=m != n) for y in (u, vh))
    gaps = inverse(row(s) - column(s), column(tolerance)) * inverse(row(s) + column(s), column(tolerance))
    a = gaps * product(u_safe, gu, True, False)
    b = gaps * product(vh_safe, gvh, False, True)
    inner = (a + transposed(a)) * row(s) + column(s) * (b + transposed(b))
    of_vectors = product(product(u_safe, inner), vh_safe)
    inverse_s = inverse(s, tolerance)
    if m > n:
        across = gu - product(u_safe, product(u_safe, gu, True, False))
        of_vectors = of_vectors + product(across * row(inverse_s), vh_safe)
    if n > m:
        across = gvh - product(product(gvh, vh_safe, False, True), vh_safe)
        of_vectors = of_vectors + product(u_safe * row(inverse_s), across)
    left, right = (u_safe, vh_safe) if depends(gs, f) else (u, vh)
    return product(left * row(gs), right) + of_vectors
