"""Backward rules of solves by factors: solves with the transposed matrices, by the same factors."""

from __future__ import annotations

import nngrad.functions as F
from nngrad.functions.factors import differentiated_if, lu_decomposition, lu_factor, lu_solve, solve_triangle, tall_qr
from nngrad.graph import Function, Variable

from .linear import half_lower, product, transposed
from .rules import backward, gradients, non_differentiable


def outer(w: Variable, y: Variable, transposed: bool) -> Variable:
    """-w y', the gradient in the matrix; for solves with transposed matrices -y w'."""
    return -(product(y, w, False, True) if transposed else product(w, y, False, True))


non_differentiable(lu_factor)  # what solves with the factors depend on, their rules say of the matrix itself


@backward(lu_decomposition)
def lu_decomposition_backward(f: Function, g: Variable, _: Variable, __: Variable) -> Variable:
    """a[permutation] = l u: ga[permutation] = inv(l') (lower(l' g) + upper(g u')) inv(u'), the lower part without the
    diagonal. Matrices that are not square are those that the missing rows or columns of the identity complete"""
    lu, _pivots, permutation = f.outputs
    m, n = lu.shape[-2:]
    if m != n:
        size, least = max(m, n), min(m, n)
        lu, g = (F.pad(x, (0, size - m, 0, size - n)) for x in (lu, g))
        lu = lu + F.pad(F.eye(size - least, dtype=lu.dtype), (least, 0, least, 0))
    u = F.trilu(lu, k=0, upper=True)
    below = F.trilu(lu, k=-1, upper=False)
    lower = F.trilu(g, k=-1, upper=False)
    moved = lower + product(below, lower, True, False)
    inner = F.trilu(moved, k=-1, upper=False) + F.trilu(product(g, u, False, True), k=0, upper=True)
    left = solve_triangle(inner, lu, lower=True, transposed=True, unit_diagonal=True)
    turned = transposed(solve_triangle(transposed(left), lu, lower=False))
    turned = turned if m == n else turned[..., :m, :n]
    order = F.reshape(F.argsort(permutation, axis=-1), shape=(*permutation.shape, 1))
    return F.take_along_axis(turned, F.broadcast(order, shape=(*permutation.shape, n)), axis=-2)


@backward(lu_solve)
def lu_solve_backward(f: Function, gy: Variable) -> tuple[Variable, None, None, Variable]:
    """a y = b: gb = w with a' w = gy, ga = -w y'"""
    (y,), (_, lu, permutation, a), (turned,) = f.outputs, f.inputs, f.arguments
    w = lu_solve(gy, lu, permutation, a, not turned)
    return w, None, None, outer(w, y, turned)


@backward(solve_triangle)
def solve_triangle_backward(f: Function, gy: Variable) -> tuple[Variable, Variable]:
    """t y = b: gb = w with t' w = gy, ga = the triangle of -w y'"""
    (y,), (_, a), (lower, turned, unit) = f.outputs, f.inputs, f.arguments
    w = solve_triangle(gy, a, lower, not turned, unit)
    return w, F.trilu(outer(w, y, turned), k=int(unit) * (-1 if lower else 1), upper=not lower)


@backward(tall_qr)
def tall_qr_backward(f: Function, gq: Variable, gr: Variable) -> Variable:
    """x = q r: gx = (gq + q (L + L')) inv(r)', L the lower half of r gr' - gq' q (Walter and Lehmann 2010)"""
    q, r = f.outputs
    lower = half_lower(product(r, gr, False, True) - product(gq, q, True, False))
    y = gq + product(q, lower + transposed(lower))
    return transposed(solve_triangle(transposed(y), r, lower=False))


gradients(differentiated_if, "gx = gy factor", lambda gy, factor: (gy * factor, None))
