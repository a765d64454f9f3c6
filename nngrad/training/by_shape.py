"""Training steps of the graphs that a function builds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ..execution.by_shape import ByShape
from ..graph import Variable, contained
from ..solvers.solver import Solver
from .checking import checked_step
from .options import StepOptions
from .parameters import named_parameters
from .parts import spec_of_part
from .step import TrainStep

R = TypeVar("R", covariant=True)


class TrainStepByShape(Generic[R]):
    """Training steps of the graphs that a function builds, one for each combination of shapes and dtypes in which the
    inputs come. Made by `train_step`; called as a `TrainStep`. All have one solver, with its parameters and state."""

    __slots__ = ("__weakref__", "_aux", "_graphs", "_named", "_options", "_parameters", "_solver")

    def __init__(
        self, loss: Callable[..., Any], aux: Any, parameters: Any, solver: Solver, options: StepOptions
    ) -> None:
        named = None if callable(parameters) else named_parameters(parameters)
        self._parameters: Callable[[], Any] = parameters if named is None else lambda: named
        self._named: dict[str, Variable] | None = None
        self._aux = aux
        self._solver = solver
        self._options = options
        self._graphs = ByShape(loss, self._step_of, lambda spec, name: spec_of_part(spec, options.accumulate, name))

    def __call__(self, *arrays: Any) -> R:
        step, arguments = self._graphs.called_with(arrays)
        return step(*arguments)

    @contained
    def _step_of(self, built: Any, inputs: list[Variable]) -> TrainStep[R]:
        loss, aux = built if isinstance(built, tuple) and len(built) == 2 else (built, self._aux)
        if aux is not self._aux and self._aux is not None:
            raise TypeError("aux: the function that builds the graph returns auxiliary results too; leave one of the "
                            "two out")
        named = named_parameters(self._graphs.in_its_scopes(self._parameters))
        first = self._named = self._named or named
        if [(name, id(p.cell)) for name, p in named.items()] != [(name, id(p.cell)) for name, p in first.items()]:
            names = ", ".join(map(repr, sorted(named.keys() ^ first.keys()))) or "new ones by the same names"
            raise ValueError(f"parameters: the graph for inputs {', '.join([str(x.spec) for x in inputs])} has others "
                             f"than the first one ({names}), so they would not be trained")
        return checked_step(loss, aux, first, self._solver, inputs, self._options)

    def __repr__(self) -> str:
        return f"<training step by shape, {self._solver!r}>"
