"""Backward rules of samples of distributions."""

import nngrad.functions as F
from nngrad.graph import Function, Variable

from .rules import backward, non_differentiable


@backward(F.log_gamma_sample)
def log_gamma_sample_backward(f: Function, gy: Variable) -> tuple[None, Variable]:
    """dy/dk = -(dP/dk) / (dP/dy) where P(k, exp(y)) is the part of the distribution below: with z = exp(y) and M_n the
    moments of order n, (y - digamma(k)) M_0 + M_1"""
    _, k = f.inputs
    (y,) = f.outputs
    z = F.exp(y)
    return None, gy * ((y - F.digamma(k)) * F.gamma_moment(k, z) + F.gamma_moment(k, z, order=1))


@backward(F.gamma_moment)
def gamma_moment_backward(f: Function, gy: Variable) -> tuple[Variable, Variable]:
    """dy/dk has one more factor w, and dy/dz one more factor -(exp(w) - 1)"""
    (k, z), order, power = f.inputs, f.args["order"], f.args["power"]
    return gy * F.gamma_moment(k, z, order=order + 1, power=power), -gy * F.gamma_moment(
        k, z, order=order, power=power + 1
    )


non_differentiable(F.binomial, F.weighted_choice)
