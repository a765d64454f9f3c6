"""The Fisher information of likelihoods with respect to a network's outputs, and square roots of it."""

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
    times: Callable[[Variable, Variable], Variable]
    """S S^T times a vector."""
    has_classes: bool = False
    """Whether the last axis holds the parameters of a single draw."""


def _categorical(y: Variable, w: Variable) -> Variable:
    p, root = F.softmax(y, axis=-1), F.exp(F.log_softmax(y, axis=-1) / 2)
    return root * w - p * F.sum(root * w, axis=-1, keepdims=True)


def _categorical_information(y: Variable, u: Variable) -> Variable:
    p = F.softmax(y, axis=-1)
    return p * (u - F.sum(p * u, axis=-1, keepdims=True))


def _bernoulli(y: Variable, w: Variable) -> Variable:
    return F.exp((F.log_sigmoid(y) + F.log_sigmoid(-y)) / 2) * w


def _bernoulli_information(y: Variable, u: Variable) -> Variable:
    return F.sigmoid(y) * F.sigmoid(-y) * u


LIKELIHOODS = {
    "gaussian": Likelihood(lambda y, w: w, lambda y, u: u),
    "categorical": Likelihood(_categorical, _categorical_information, has_classes=True),
    "bernoulli": Likelihood(_bernoulli, _bernoulli_information),
}
"""The likelihoods of `nn.fisher`, by name."""
