"""Backward rules of samples of distributions."""

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .rules import backward, non_differentiable, slopes


@backward(F.log_gamma_sample)
def log_gamma_sample_backward(f: Function, gy: Variable) -> tuple[None, Variable]:
    """dy/dk = -(dP/dk) / (dP/dy) where P(k, exp(y)) is the part of the distribution below: with z = exp(y) and M_n the
    moments of order n, (y - digamma(k)) M_0 + M_1"""
    _, k = f.inputs
    (y,) = f.outputs
    z = F.exp(y)
    return None, gy * ((y - F.digamma(k)) * F.gamma_moment(k, z) + F.gamma_moment(k, z, order=1))


slopes(
    F.gamma_moment, "dy/dk has one more factor w, and dy/dz one more factor -(exp(w) - 1)",
    lambda k, z, order, power: (F.gamma_moment(k, z, order + 1, power), -F.gamma_moment(k, z, order, power + 1)),
)  # fmt: skip
non_differentiable(F.binomial, F.weighted_choice)
