"""Backward rules of samples of distributions."""

import nngrad.functions as F

from .rules import gradients, non_differentiable, slopes

gradients(
    F.log_gamma_sample,
    "dy/dk = -(dP/dk) / (dP/dy) where P(k, exp(y)) is the part of the distribution below: with z = exp(y) and M_n the "
    "moments of order n, (y - digamma(k)) M_0 + M_1",
    lambda gy, k, y: (
        None, gy * ((y - F.digamma(k)) * F.gamma_moment(k, F.exp(y)) + F.gamma_moment(k, F.exp(y), order=1)),
    ),
)  # fmt: skip
slopes(
    F.gamma_moment, "dy/dk has one more factor w, and dy/dz one more factor -(exp(w) - 1)",
    lambda k, z, order, power: (F.gamma_moment(k, z, order + 1, power), -F.gamma_moment(k, z, order, power + 1)),
)  # fmt: skip
non_differentiable(F.binomial, F.weighted_choice)
