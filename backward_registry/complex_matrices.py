"""Backward rules of functions of complex matrices, on their real and imaginary parts.

The gradient of a real function in z = x + i y is the pair (df/dx, df/dy), written as one complex number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import nngrad.functions as F
from nngrad.functions.array import filled_like, zeros_like
from nngrad.functions.complex_matrices import (
    complex_cofactor,
    complex_det,
    complex_inv,
    complex_slogdet,
    general_eig,
    hermitian_eigh,
)
from nngrad.graph import Function, Variable

from .linear import per_matrix, product, transposed
from .rules import backward, backward_with_limits
from .spectra import Quotients, added, column, differences, rounding, row

Pair = Sequence[Variable]


def times_adjoint(a: Pair, b: Pair, adjoint_first: bool = False) -> Pair:
    """a b^H, or a^H b"""
    (ar, ai), (br, bi) = a, b

    def times(x: Variable, y: Variable) -> Variable:
        return product(x, y, adjoint_first, not adjoint_first)

    cross = times(ar, bi) - times(ai, br)
    return times(ar, br) + times(ai, bi), cross if adjoint_first else -cross


@backward(complex_inv)
def complex_inv_backward(f: Function, real: Variable, imaginary: Variable) -> Pair:
    """y = inv(x): gx = -y^H gy y^H"""
    c, d = f.outputs
    gr, gi = times_adjoint(times_adjoint((c, d), (real, imaginary), True), (c, d))
    return -gr, -gi


@backward(complex_det)
def complex_det_backward(f: Function, gr: Variable, gi: Variable) -> Pair:
    """y = det(x): gx = gy conj(cofactors(x))"""
    u, v = complex_cofactor(*f.inputs)
    gr, gi = per_matrix(gr, u), per_matrix(gi, u)
    return gr * u + gi * v, gi * u - gr * v


@backward(complex_cofactor)
def complex_cofactor_backward(f: Function, gr: Variable, gi: Variable) -> Sequence[Variable | None]:
    """As that of `batch_cofactor`: each gradient is the conjugate of a form with conj(gy) as a direction"""
    x, directions, most = f.inputs[:2], f.inputs[2:], 2 * f.inputs[0].shape[-1]
    if len(f.inputs) > most:
        return (None,) * len(f.inputs)
    along = [(*x, *directions[:i], *directions[i + 2 :]) for i in range(0, len(directions), 2)]
    forms = [complex_cofactor(*operands, gr, -gi) for operands in ([f.inputs] if len(f.inputs) < most else []) + along]
    parts = [part for c, d in forms for part in (c, -d)]
    return parts if len(f.inputs) < most else [None, None, *parts]


@backward(complex_slogdet)
def complex_slogdet_backward(f: Function, real: Variable, imaginary: Variable, size: Variable) -> Pair:
    """d log det(x) = trace(inv(x) dx): gx = (gs + i ga) inv(x)^H, ga = Re(conj(g) i sign) by g at the sign"""
    c, d, _ = f.outputs
    u, v = [transposed(y) for y in complex_inv(*f.inputs)]
    size, angle = per_matrix(size, u), per_matrix(imaginary * c - real * d, u)
    return size * u + angle * v, angle * u - size * v


@backward_with_limits(hermitian_eigh, axes=(-1, -1, -1))
def hermitian_eigh_backward(f: Function, gys: Sequence[Variable | None], near: Any) -> Pair:
    """x = v diag(w) v^H: gx = v (diag(gw) + a / (w_j - w_i) / 2) v^H with a = v^H gv - gv^H v"""
    w, *v = f.outputs
    if not w.size:
        return [zeros_like(x) for x in f.inputs]
    quotients = Quotients(f, gys, near, 0, (None, -2, -2))

    def turning(part: int, gv: Sequence[Variable | None]) -> Variable | None:
        if gv[0] is gv[1] is None:
            return None
        full = [zeros_like(x) if g is None else g for g, x in zip(gv, v, strict=True)]
        y = times_adjoint(v, full, adjoint_first=True)[part]
        return y + transposed(y) if part else y - transposed(y)

    of_vectors = [quotients.over(differences, lambda _, *gv, part=part: turning(part, gv)) for part in (0, 1)]
    on_diagonal = None if gys[0] is None else F.matrix_diag(gys[0])
    real = added(on_diagonal, None if of_vectors[0] is None else 0.5 * of_vectors[0])
    imaginary = zeros_like(real) if of_vectors[1] is None else 0.5 * of_vectors[1]
    gr, gi = times_adjoint(times_adjoint(v, (real, imaginary)), v)
    return quotients.guarded(0.5 * (gr + transposed(gr))), quotients.guarded(0.5 * (gi - transposed(gi)))


@backward(general_eig)
def general_eig_backward(f: Function, *gys: Variable) -> Sequence[Variable]:
    """x = v diag(w) inv(v): gx = inv(v)^H (diag(gw) + (v^H gv) / conj(w_j - w_i)) v^H, off the
    diagonal; NaN where rounding may explain the difference, as in second derivatives by eigenvalues alone."""
    wr, wi, vr, vi = f.outputs
    sr, si = times_adjoint((vr, vi), gys[2:], adjoint_first=True)
    x, y = [row(w) - column(w) for w in (wr, wi)]
    on_diagonal = F.matrix_diag(F.constant(val=1, shape=wr.shape, dtype=wr.dtype))
    close = F.less_equal(F.abs(x) + F.abs(y), per_matrix(64 * rounding(F.abs(wr) + F.abs(wi)), x))
    size = F.where(close, filled_like(x, math.nan), x * x + y * y)
    size = F.where(on_diagonal, filled_like(x, math.inf), size)
    inner = (sr * x - si * y) / size + F.matrix_diag(gys[0]), (sr * y + si * x) / size + F.matrix_diag(gys[1])
    gx = times_adjoint(times_adjoint(complex_inv(vr, vi), inner, adjoint_first=True), (vr, vi))
    return gx[: len(f.inputs)]
