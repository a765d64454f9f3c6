"""Primitives that factor matrices, and solve systems."""

from __future__ import annotations

from ... import functions as F
from ...functions.factors import lu_decomposition
from ...graph import Variable
from .registry import JaxprEquation, opens, require


@opens("cholesky")
def _cholesky(equation: JaxprEquation, x: Variable) -> Variable:
    return F.batch_cholesky(x)


@opens("triangular_solve")
def _triangular_solve(equation: JaxprEquation, a: Variable, b: Variable) -> Variable:
    p = equation.params
    require(not p["conjugate_a"], "of the conjugate")
    transposed = bool(p["transpose_a"])
    if p["left_side"]:
        return F.triangular_solve(
            a, b, lower=bool(p["lower"]), transposed=transposed, unit_diagonal=bool(p["unit_diagonal"])
        )
    swapped = F.triangular_solve(
        a,
        F.swapaxes(b, -1, -2),
        lower=bool(p["lower"]),
        transposed=not transposed,
        unit_diagonal=bool(p["unit_diagonal"]),
    )
    return F.swapaxes(swapped, -1, -2)


@opens("eigh")
def _eigh(equation: JaxprEquation, x: Variable) -> list[Variable]:
    require(equation.params.get("subset_by_index") in (None, (0, x.shape[-1])), "of some of the eigenvalues")
    values, vectors = F.batch_eigh(x)
    return [vectors, values]


@opens("svd")
def _svd(equation: JaxprEquation, x: Variable) -> list[Variable]:
    p = equation.params
    require(not p["compute_uv"] or not p.get("full_matrices") or x.shape[-1] == x.shape[-2], "with full matrices")
    require(p.get("subset_by_index") in (None, (0, min(x.shape[-2:]))), "of some of the singular values")
    u, s, vh = F.batch_svd(x)
    return [s, u, vh] if p["compute_uv"] else [s]


@opens("lu")
def _lu(equation: JaxprEquation, x: Variable) -> list[Variable]:
    require(x.shape[-1] == x.shape[-2], "of matrices that are not square")
    return list(lu_decomposition(x))


@opens("qr")
def _qr(equation: JaxprEquation, x: Variable) -> list[Variable]:
    p = equation.params
    require(not p.get("pivoting"), "with pivots")
    require(not p["full_matrices"] or x.shape[-2] <= x.shape[-1], "with full matrices")
    return list(F.batch_qr(x))
