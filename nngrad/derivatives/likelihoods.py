"""Square roots of the Fisher information of likelihoods with respect to a network's outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import nngrad.functions as F

from ..graph import Variable


class Likelihood(NamedTuple):
    """A distribution whose natural parameters are the outputs of a network, and a root S of its Fisher information `S
    S^T` in them. Both functions take the outputs and the vector to multiply."""

    times_root: Callable[[Variable, Variable], Variable]
    """S times a vector."""
    times_transposed_root: Callable[[Variable, Variable], Variable]
    """S^T times a vector."""
    has_classes: bool = False
    """Whether the last axis holds the parameters of a single draw."""


def _categorical(y: Variable, w: Variable) -> Variable:
    p, root = F.softmax(y, axis=-1), F.exp(F.log_softmax(y, axis=-1) / 2)
    return root * w - p * F.sum(root * w, axis=-1, keepdims=True)


def _categorical_transposed(y: Variable, u: Variable) -> Variable:
    p, root = F.softmax(y, axis=-1), F.exp(F.log_softmax(y, axis=-1) / 2)
    return root * (u - F.sum(p * u, axis=-1, keepdims=True))


def _bernoulli(y: Variable, w: Variable) -> Variable:
    return F.exp((F.log_sigmoid(y) + F.log_sigmoid(-y)) / 2) * w


LIKELIHOODS = {
    "gaussian": Likelihood(lambda y, w: w, lambda y, u: u),
    "categorical": Likelihood(_categorical, _categorical_transposed, has_classes=True),
    "bernoulli": Likelihood(_bernoulli, _bernoulli),
}
"""The likelihoods of `nn.fisher`, by name."""
