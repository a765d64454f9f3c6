"""Backward rules of cofactors, exponentials and pseudoinverses.

`spectra.py` has those of the ops behind decompositions.
"""

from __future__ import annotations

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .linear import product, transposed
from .rules import backward


@backward(F.batch_cofactor)
def batch_cofactor_backward(f: Function, gy: Variable) -> tuple[Variable | None, ...]:
    """A symmetric multilinear form: it is linear in each direction, and its derivative in x adds a direction"""
    x, *directions = f.inputs
    if len(f.inputs) > x.shape[-1]:
        return (None,) * len(f.inputs)
    gx = F.batch_cofactor(x, *directions, gy) if len(f.inputs) < x.shape[-1] else None
    others = [directions[:i] + directions[i + 1 :] for i in range(len(directions))]
    return gx, *[F.batch_cofactor(x, *rest, gy) for rest in others]


@backward(F.batch_pinv)
def batch_pinv_backward(f: Function, gy: Variable) -> Variable:
    """gx = -p' gy p' + (1 - x p) gy' p p' + p' p gy' (1 - p x), where the rank is locally constant (Golub, Pereyra)"""
    (x,), (p,) = f.inputs, f.outputs
    by_inverse = product(p, product(gy, p, False, True), True, False)  # p' gy p'
    below = product(gy, product(p, p, False, True), True, False)  # gy' p p'
    beside = product(product(p, p, True, False), gy, False, True)  # p' p gy'
    of_columns = below - product(x, product(p, below))  # 0 where all rows are independent
    of_rows = beside - product(product(beside, p), x)  # 0 where all columns are
    return of_columns + of_rows - by_inverse


@backward(F.batch_expm)
def batch_expm_backward(f: Function, gy: Variable) -> tuple[Variable, ...]:
    """A symmetric multilinear form, adjoint to that of transposed matrices: each gradient has gy as a direction"""
    x, *directions = [transposed(matrices) for matrices in f.inputs]
    others = [directions, *[directions[:i] + directions[i + 1 :] for i in range(len(directions))]]
    return tuple([F.batch_expm(x, *rest, gy) for rest in others])
