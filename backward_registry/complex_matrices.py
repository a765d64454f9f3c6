"""Backward rules of functions of complex matrices, on their real and imaginary parts.

The gradient of a real function in z = x + i y is the pair (df/dx, df/dy), written as one complex number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import nngrad.functions as F
from nngrad.functions.array import filled_like
from nngrad.functions.complex_matrices import complex_inv, complex_slogdet, general_eig
from nngrad.graph import Function, Variable

from .linear import per_matrix, product, transposed
from .rules import backward
from .spectra import column, rounding, row

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


@backward(complex_slogdet)
def complex_slogdet_backward(f: Function, real: Variable, imaginary: Variable, size: Variable) -> Pair:
    """d log det(x) = trace(inv(x) dx): gx = (gs + i ga) inv(x)^H, ga = Re(conj(g) i sign) by g at the sign"""
    c, d, _ = f.outputs
    u, v = [transposed(y) for y in complex_inv(*f.inputs)]
    size, angle = per_matrix(size, u), per_matrix(imaginary * c - real * d, u)
    return size * u + angle * v, angle * u - size * v


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
