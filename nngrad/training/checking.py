"""What a training step is made of, checked."""

from __future__ import annotations

from typing import Any

import nngrad.functions as F

from ..autodiff.request import differentiable
from ..graph import Variable
from ..solvers.solver import Solver
from .auxiliary import Auxiliary
from .options import StepOptions
from .parameters import named_parameters
from .step import TrainStep


def checked_step(
    loss: Any, aux: Any, parameters: Any, optimizer: Any, inputs: list[Variable], options: StepOptions
) -> TrainStep[Any]:
    """The training step of a graph, whose parts are checked."""
    solver = solver_of(optimizer)
    residuals = None
    if solver.takes_residuals:
        _check_takes_residuals(solver, options)
        residuals = differentiable(loss, "loss")
        if len({r.dtype for r in residuals}) != 1:
            raise TypeError("loss: residuals must be of one dtype; cast them with F.cast")
        loss = F.mul_scalar(F.add_n(*[F.sum(r**2) for r in residuals]), val=0.5)
    if not isinstance(loss, Variable):
        raise TypeError(f"loss: expected a Variable, got {type(loss).__name__}")
    if loss.shape != ():
        raise ValueError(f"loss: must be a scalar, of shape (), got shape {loss.shape}; take its sum or mean")
    if not loss.spec.differentiable:
        raise TypeError(f"loss: is {loss.dtype.name}; only floating dtypes can be differentiated")
    auxiliary = None if aux is None else Auxiliary(aux)
    named = named_parameters(parameters)
    for i, x in enumerate(inputs):
        if not isinstance(x, Variable):
            raise TypeError(f"inputs[{i}]: expected a Variable, got {type(x).__name__}")
    _check_distinct(named, inputs)
    return TrainStep(loss, auxiliary, named, solver, inputs, options, residuals)


def solver_of(optimizer: Any) -> Solver:
    return optimizer if isinstance(optimizer, Solver) else Solver.from_optax(optimizer)


def _check_takes_residuals(solver: Solver, options: StepOptions) -> None:
    """Raise unless a solver that takes residuals can do what is asked of it."""
    name = solver.name
    if options.accumulate != 1:
        raise ValueError(f"accumulate: S.{name} solves with all residuals together, so it takes no parts of a batch")
    for each in ("clip_grad_by_value", "clip_grad_by_norm", "clip_grad_by_global_norm", "weight_decay"):
        if getattr(options, each) is not None:
            raise ValueError(f"{each}: S.{name} does not move along gradients, so they are not changed; give it more "
                             "damping, or add what is to be small to the residuals")


def _check_distinct(parameters: dict[str, Variable], inputs: list[Variable]) -> None:
    seen: dict[int, str] = {}
    for name, p in parameters.items():
        other = seen.setdefault(id(p.cell), name)
        if other != name:
            raise ValueError(f"parameters: {name!r} and {other!r} are the same, or share their data")
    for i, x in enumerate(inputs):
        if x.parent is None and id(x.cell) in seen:
            raise ValueError(f"inputs[{i}]: is the parameter {seen[id(x.cell)]!r}, or shares its data")
    if len({id(x) for x in inputs}) != len(inputs):
        raise ValueError("inputs: the same Variable is given twice")
