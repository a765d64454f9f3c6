"""Backward rules of monomials and linear combinations."""

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .rules import backward, gradients


@backward(F.monomial)
def monomial_backward(f: Function, gy: Variable) -> list[Variable | None]:
    """dy/dxi = pi xi^(pi - 1) times the other powers, and 0 where pi is 0"""
    powers = f.args["powers"]
    gxs: list[Variable | None] = []
    for i, power in enumerate(powers):
        if power == 0:
            gxs.append(None)
            continue
        slope = F.monomial(*f.inputs, powers=(*powers[:i], power - 1, *powers[i + 1 :]))
        gxs.append(gy * F.linear_combination(slope, coefficients=(power,)))
    return gxs


gradients(
    F.linear_combination, "dy/dxi = ci",
    lambda gy, coefficients: [F.linear_combination(gy, coefficients=(c,)) for c in coefficients],
)  # fmt: skip
