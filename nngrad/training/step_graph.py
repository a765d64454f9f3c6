"""The graph of a training step as a program, and the sources of its leaves' values."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from ..extend import (
    NdArray,
    Program,
    Request,
    Switched,
    Variable,
    device_of,
    emitted,
    functions_of,
    leaf_of,
    leaves_of,
    linearize,
    reached_leaves,
    spec_of,
    warn_user,
)
from ..jax.to_jax import check_read
from ..solvers.loss_scale import DynamicLossScale
from ..solvers.solver import Solver


class LeafSource(enum.IntEnum):
    """The source of a leaf's value."""

    PARAMETERS = 0
    INPUTS = 1
    LEAVES = 2
    """Leaves that are read from their cells when the step is called."""
    STATE = 3
    """The number in the solver's state that the graph reads: the loss scale, or the damping."""


Place = tuple[LeafSource, int]
"""A source, and an index in it."""


class StepGraph:
    """Loss, auxiliary results and gradients of a graph, as one program.

    The program returns the loss, auxiliary results, gradients, and new values of leaves. For a solver that takes
    `residuals`, the loss is half the sum of their squares.
    """

    def __init__(
        self,
        loss: Variable,
        auxiliary: list[Variable],
        parameters: dict[str, Variable],
        solver: Solver,
        inputs: list[Variable],
        recompute: Any,
        residuals: list[Variable] | None = None,
    ) -> None:
        self._owners = {id(p.cell): i for i, p in enumerate(solver._variables)}
        # A parameter may occur as several leaves that share its data (`fix_parameters`).
        leaves = [x for x in leaves_of([loss]) if x.need_grad and id(x.cell) in self._owners]
        targets = [(x, self._owners[id(x.cell)]) for x in leaves]
        self._tell_of_idle(loss, leaves, list(parameters))
        known = set(map(id, [*[x for x, _ in targets], *inputs]))
        others = [x for x in leaves_of([loss]) if x.need_grad and id(x) not in known]
        self.others = reached_leaves.of([loss], others, functions_of([loss])) if others else []
        """Leaves with `need_grad` that a gradient would reach, but which are neither trained here nor inputs."""
        seed = seed_for(loss, solver)
        self.device = device_of([loss])
        leaves = [*[x for x, _ in targets], *inputs]

        directions: list[Variable] = []
        from_state = seed

        def linearized(gradients: list[Variable]) -> Any:
            return linearize([loss, *auxiliary, *gradients, *directions], first=leaves, device=self.device)

        with Switched(auto_forward=False, no_grad=False):
            if residuals is not None:
                from_state = leaf_of(NdArray.of_spec(spec_of((), solver._variables[0].dtype)))
                shared = [leaf_of(p.cell) for p in solver._variables]  # each stands for all leaves with its data
                directions += solver.directions(residuals, shared, from_state)
            request = Request(
                [loss], [x for x, _ in targets], [seed], recompute=recompute,
                runs_as=lambda candidates: linearized(candidates).program,
            )
            gradients = emitted(request).gradients
        linear = linearized(gradients)
        self.program = linear.program
        if residuals is not None and self.program.mesh is not None:
            raise ValueError(f"optimizer: S.{solver.name} runs on one device; leave out nn.mesh")
        if seed is None and _narrows(self.program):
            warn_user("train_step: the graph computes in float16, in which small gradients become zero; scale the loss "
                      "with solver.loss_scaling(nn.DynamicLossScale()), or compute in bfloat16")
        if self.program.group is not None:
            raise ValueError(
                "loss: its graph exchanges arrays with other processes, but a training step does not sum gradients "
                "over processes. Give nn.train_step the whole batch under nn.mesh, or call forward, backward with a "
                "communicator's all_reduce_callback, and update"
            )
        check_read(self.program, inputs, len(targets))
        first = 1 + len(auxiliary)
        self.gradients = [[first + k for k, (_, i) in enumerate(targets) if i == n] for n in range(len(parameters))]
        """For each parameter, the indices of the results that add up to its gradient."""
        after = first + len(targets)
        self.directions = list(range(after, after + len(directions)))
        """The indices of the directions to move against, for a solver that takes residuals."""
        self.updates_from = after + len(directions)
        """The index of the first result that is a new value of a leaf."""
        self.updated = list(linear.updated)
        """The leaves with new values."""
        for x in self.updated:
            if id(x.cell) in self._owners:
                name = list(parameters)[self._owners[id(x.cell)]]
                raise ValueError(f"parameters: cannot train {name!r}, which the graph itself writes to, such as a "
                                 "running statistic")
        self._numbers = {id(x): j for j, x in enumerate(inputs)}
        self._numbers_of_live: dict[int, int] = {}
        self.live: list[Variable] = []
        """The leaves that are read from their cells, including keys of random functions."""
        in_state = residuals is not None or isinstance(solver.scaling, DynamicLossScale)
        self.places = [
            (LeafSource.STATE, 0) if x is from_state and in_state else self.place_of(x) for x in linear.leaves
        ]
        """The sources of the values of the program's leaves."""
        self.places_of_updated = [self.place_of(x) for x in self.updated]
        """The sources of the old values of the updated leaves."""

    @property
    def keys(self) -> list[int]:
        """The indices of live leaves that are keys of random functions."""
        return [i for i, x in enumerate(self.live) if x.key_source is not None]

    def place_of_parameter(self, x: Variable) -> Place | None:
        """The position of a trained parameter; None for other Variables."""
        number = self._owners.get(id(x.cell))
        return None if number is None else (LeafSource.PARAMETERS, number)

    def place_of(self, x: Variable) -> Place:
        """The source of a leaf's value: its cell, if nothing else provides it."""
        if id(x) in self._numbers:
            return LeafSource.INPUTS, self._numbers[id(x)]
        if id(x.cell) in self._owners:
            return LeafSource.PARAMETERS, self._owners[id(x.cell)]
        number = self._numbers_of_live.setdefault(id(x.cell), len(self.live))
        if number == len(self.live):
            self.live.append(x)
        return LeafSource.LEAVES, number

    def _tell_of_idle(self, loss: Variable, leaves: list[Variable], names: list[str]) -> None:
        """Warn of parameters that no gradient reaches. `leaves` are those that stand for parameters in the graph."""
        reached = {id(x) for x in reached_leaves.of([loss], leaves, ())}
        there = {self._owners[id(x.cell)] for x in leaves}
        trained = {self._owners[id(x.cell)] for x in leaves if id(x) in reached}
        idle = ", ".join([repr(name) for i, name in enumerate(names) if i not in there])
        cut = ", ".join([repr(names[i]) for i in sorted(there - trained)])
        if idle:
            warn_user(f"train_step: the loss does not depend on {idle}; leave out parameters that should not be "
                      "trained, or check that the graph was built from these Variables")
        if cut:
            warn_user(f"train_step: no gradient of the loss reaches {cut}, although it depends on them: all ways to "
                      "them lead through F.unlink, a function without gradient, need_grad=False, or a gradient that is "
                      "a constant (enable_double_backprop=False)")


def _narrows(program: Program) -> bool:
    """True for a program that casts a wider dtype to float16."""
    block = program.block
    casts = any([isinstance(a, np.dtype) and a == np.float16 for _, arguments, _ in block.steps for a in arguments])
    return casts and any([spec.dtype == np.float32 for spec in block.inputs])


def seed_for(loss: Variable, solver: Solver) -> Variable | None:
    """The cotangent of the loss, which is the solver's loss scale; None for 1.

    It is a leaf, since simplification would move a constant factor to where it no longer prevents underflow.

    Raises:
        ValueError: The dtype of the loss cannot hold the scale.
    """
    scaling = solver.scaling
    if scaling is None:
        return None
    # A dynamic scale that is too large shrinks by itself.
    lowest = scaling.minimum if isinstance(scaling, DynamicLossScale) else scaling
    with np.errstate(over="ignore"):
        held = float(np.asarray(lowest).astype(loss.dtype))
    if held != lowest:
        raise ValueError(f"loss: the loss scale {lowest:g} does not fit in {loss.dtype.name}; "
                         "compute the loss in float32, or use another scale")
    if isinstance(scaling, DynamicLossScale):
        return leaf_of(NdArray.of_spec(loss.spec))
    return Variable.from_numpy_array(scaling, dtype=loss.dtype)
