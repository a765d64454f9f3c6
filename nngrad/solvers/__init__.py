"""S: solvers, which move parameters along their gradients. They are optax's transformations under nnabla's names."""

from .loss_scale import DynamicLossScale
from .named import (
    AMSGRAD,
    AdaBelief,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    Lamb,
    Lars,
    Lion,
    Momentum,
    Nesterov,
    RMSprop,
    RMSpropGraves,
    Sgd,
    SgdW,
)
from .solver import Solver

__all__ = [
    "AMSGRAD",
    "AdaBelief",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "DynamicLossScale",
    "Lamb",
    "Lars",
    "Lion",
    "Momentum",
    "Nesterov",
    "RMSprop",
    "RMSpropGraves",
    "Sgd",
    "SgdW",
    "Solver",
]
