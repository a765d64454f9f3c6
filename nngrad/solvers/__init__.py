"""S: solvers, which update parameters along their gradients: optax's transformations under nnabla's names."""

from typing import TYPE_CHECKING, Any

from ..extend import no_attribute
from .loss_scale import DynamicLossScale
from .named import (
    AMSGRAD,
    AdaBelief,
    AdaBound,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    AMSBound,
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
from .second_order import LBFGS, GaussNewton
from .solver import Solver

__all__ = [
    "AMSGRAD", "LBFGS", "AMSBound", "AdaBelief", "AdaBound", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax",
    "DynamicLossScale", "GaussNewton", "Lamb", "Lars", "Lion", "Momentum", "Nesterov", "RMSprop", "RMSpropGraves",
    "Sgd", "SgdW", "Solver",
]  # fmt: skip


if not TYPE_CHECKING:  # type checkers report this themselves

    def __getattr__(name: str) -> Any:
        raise no_attribute(f"nngrad.solvers has no {name!r}", name, __all__, module="nngrad.solvers")
