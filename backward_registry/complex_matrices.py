"""Backward rules of functions of complex matrices, on their real and imaginary parts.

The gradient of a real function in z = x + i y is the pair (df/dx, df/dy), written as one complex number.
"""

from __future__ import annotations

from nngrad.functions.complex_matrices import complex_inv, complex_slogdet
from nngrad.graph import Function, Variable

from .linear import per_matrix, product, transposed
from .rules import backward

Pair = tuple[Variable, Variable]


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
