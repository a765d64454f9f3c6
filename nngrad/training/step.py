"""The training step of a fixed graph; also as a pure JAX function, which can be traced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, Generic, TypeVar

import jax
import numpy as np

from ..extend import (
    Switched,
    Value,
    Variable,
    arrays_of,
    check_not_traced,
    grad,
    leaves_of,
    placement,
    reached_leaves,
    warn_user,
)
from ..inspection.nan import nan_in
from ..solvers.gradients import Arrays
from ..solvers.in_place import STEP_TO_TRACE, InPlaceUpdate
from ..solvers.solver import Solver
from ..solvers.untrained import warn_of_untrained
from .computation import StepComputation, check_count, input_array
from .modules import Module
from .options import Auxiliary, StepOptions
from .step_graph import StepGraph

Carried = dict[str, Any]
"""The values passed from step to step: `parameters` by name, the solver's `state`, the `leaves` that a step writes
(running statistics, averages) and the `learning_rate`."""
PureStep = Callable[..., tuple[Any, Carried]]


def pure_step(
    computation: StepComputation, solver: Solver, live: Sequence[Variable], written: Sequence[Variable], raises: bool
) -> tuple[PureStep, Carried]:
    """The step as a pure function of its `live` leaves and arguments, and the initial value of its first argument. It
    returns new values of the `written` leaves and, with `raises`, flags for finite values."""
    if solver.has_schedule:
        raise ValueError("to_jax: the solver's learning rate follows a schedule, which only Python can evaluate; "
                         "set a number first, and set carried['learning_rate'] in your loop")
    numbers = {id(x.cell): i for i, x in enumerate(live)}
    if not all([id(x.cell) in numbers for x in written]):
        raise ValueError("to_jax: the step writes to one of its inputs, which a JAX function cannot do")
    places = [numbers[id(x.cell)] for x in written]
    keys = [i for i, x in enumerate(live) if x.key_source is not None]
    names = tuple(solver.get_parameters())
    with solver.updating:
        arrays = arrays_of(live, draw=False)
        parameters = Value.read([p.cell for p in solver._variables])
        carried = {
            "parameters": dict(zip(names, parameters, strict=True)),
            "state": tuple(solver._flat_state()),
            "leaves": tuple([arrays[i] for i in places]),
            "learning_rate": solver._rate,
        }

    def function(carried: Carried, *inputs: Any, key: Any = None) -> tuple[Any, Carried]:
        now = list(arrays)
        for i, value in zip(places, carried["leaves"], strict=True):
            now[i] = value
        if keys and key is None:
            raise ValueError("key: required, because the step has random functions; pass key=jax.random.key(...)")
        for i, drawn in zip(keys, jax.random.split(key, len(keys)) if keys else (), strict=True):
            now[i] = jax.random.key_data(drawn)
        arguments = carried["learning_rate"], inputs, now
        before = tuple([carried["parameters"][name] for name in names])  # JAX sorts dicts by key
        state, new, leaves, result = computation(carried["state"], before, arguments)
        named = dict(zip(names, new, strict=True))
        after = {**carried, "parameters": named, "state": state, "leaves": tuple(leaves)}
        return result[0] if raises else result, after

    return function, carried


R = TypeVar("R", covariant=True)


class TrainStep(Generic[R]):
    """A training step of a fixed graph. Made by `train_step`.

    Called with the inputs' values (arrays, Variables, NdArrays, numbers or lists), it moves the parameters by one step
    and returns the loss before the step as a `jax.Array`; with auxiliary results, the pair `(loss, aux)`.

    Parameters, the solver's state, averages and leaves updated by the graph change atomically, once all of them have
    been dispatched: after an error or an interrupt, in signal handlers and in other threads, all have either their old
    values or their new ones. Threads that call steps of one solver take turns.
    """

    module: Module | None = None
    """The Module whose parameters it trains, if it was given one."""

    def __init__(
        self,
        loss: Variable,
        auxiliary: Auxiliary | None,
        parameters: dict[str, Variable],
        solver: Solver,
        inputs: list[Variable],
        options: StepOptions,
        residuals: list[Variable] | None = None,
    ) -> None:
        if [(n, id(p)) for n, p in solver.get_parameters().items()] != [(n, id(p)) for n, p in parameters.items()]:
            solver.set_parameters(parameters, retain_state=True)
        self._solver = solver
        self._variables = solver._variables
        names = [f"input {i} ({x.name!r})" if x.name else f"input {i}" for i, x in enumerate(inputs)]
        variables = [] if auxiliary is None else auxiliary.variables
        graph = StepGraph(loss, variables, parameters, solver, inputs, options.recompute, residuals)
        specs = [x.spec for x in inputs]
        self._computation = StepComputation(graph, loss.spec, auxiliary, solver, specs, names, options)
        self._inputs = inputs
        self._input_specs = self._computation.input_specs
        self._input_names = names
        self._live = graph.live
        self._others = graph.others
        reached_leaves.unwatch(solver)  # this step tracks such changes itself
        self._raises = options.on_nan == "raise"
        self._loss = loss if self._raises else None
        self._kinds: set[Any] = set()  # kinds of arguments that need no conversion
        program = graph.program
        self._mesh = program.mesh
        is_users = program.block.opaque or solver.opaque
        self._update = InPlaceUpdate(self._computation, solver, graph.updated, program, is_users)

    def __call__(self, *arrays: Any) -> R:
        check_not_traced("a training step", STEP_TO_TRACE)
        try:
            kind = (*map(type, arrays), *map(_dtype_of, arrays))
        except AttributeError:  # lists and numbers have no shape
            kind = ()
        if kind not in self._kinds:
            arrays = self._converted(arrays)
            kind = (*map(type, arrays), *map(_dtype_of, arrays))
            self._kinds.add(kind)
        solver, mesh = self._solver, self._mesh
        if self._others:  # by now all solvers have their parameters
            others, self._others = self._others, []
            warn_of_untrained("train_step", others)
        if mesh is not None:
            arrays = self._placed(arrays, mesh)
            kind += tuple([array.sharding for array in arrays])
        if solver.unused_change:
            self._tell_of_unused_change()
        with solver.updating:
            if solver._variables is not self._variables:
                raise RuntimeError("the solver was given other parameters or another loss scaling after this training "
                                   "step was made; make a new step")
            if not all(map(_need_grad_of, self._variables)):
                raise RuntimeError("train_step: need_grad of a parameter that this step trains was set to False after "
                                   "it was made; set it to True again, or make a new step")
            live = self._live and arrays_of(self._live, mesh=mesh)
            if live:
                kind += (*map(type, live), *map(_dtype_of, live))
            results = self._update(kind, (solver._rate, arrays, live))
        result: R = self._checked(results[0], results[1], arrays) if self._raises else results
        return result

    def to_jax(self) -> tuple[PureStep, Carried]:
        """The step as a pure JAX function, which can be traced, exported or lowered for another platform.

            function, carried = step.to_jax()
            program = jax.export.export(jax.jit(function), platforms=["cuda"])(carried, x, t)

        `loss, carried = function(carried, *inputs)` has no side effects: parameters, the solver's state and everything
        else that a step writes are passed in and returned as `carried`, a pytree that starts with the current values.
        Leaves that the step does not write are frozen at their current values. With random functions, the function
        takes a JAX random key as `key=`. With `on_nan="raise"` it skips the step instead. JAX's setting of x64 applies.

        Raises:
            ValueError: The step writes to one of its inputs.
        """
        return pure_step(self._computation, self._solver, self._live, self._update.updated, self._raises)

    def _converted(self, values: Arrays) -> Arrays:
        """The values of the inputs as arrays."""
        check_count(values, self._input_specs)
        return tuple([
            value if isinstance(value, np.ndarray | jax.Array) else input_array(value, spec, name)
            for value, spec, name in zip(values, self._input_specs, self._input_names, strict=True)
        ])

    def _placed(self, arrays: Arrays, mesh: placement.Mesh) -> Arrays:
        """The values of the inputs on the mesh."""
        placed = zip(arrays, self._input_names, self._inputs, strict=True)
        return tuple([mesh.argument(array, name, x) for array, name, x in placed])

    def _checked(self, results: Any, flags: Any, arrays: Arrays) -> Any:
        """Return the results if the step was taken; otherwise raise a FloatingPointError that names the values."""
        finite = np.asarray(flags)
        if finite.all():
            return results
        loss = results if isinstance(results, jax.Array) else results[0]
        names = [repr(name) for name, is_finite in zip(self._solver._params, finite[1:], strict=True) if not is_finite]
        gradients = f"the gradients of {', '.join(names)} are not finite" if names else "all gradients are finite"
        raise FloatingPointError(f"train_step: the loss is {float(loss):g}, and {gradients}; the step left parameters "
                                 f"and state unchanged. {self._where(arrays)}")

    def _where(self, arrays: Arrays) -> str:
        """The function that made the first NaN or infinity of a rejected step, in the loss or else in the gradients."""
        if self._loss is not None and self._mesh is None:
            with suppress(Exception), Switched(auto_forward=False, no_grad=False):  # the original error is more useful
                cells = {id(p.cell) for p in self._variables}
                gradients = grad([self._loss], [x for x in leaves_of([self._loss]) if id(x.cell) in cells])
                leaves = leaves_of([self._loss, *gradients])
                now = dict(zip(map(id, leaves), arrays_of(leaves, draw=False), strict=True))
                now |= {id(x): np.asarray(array) for x, array in zip(self._inputs, arrays, strict=True)}
                for outputs in ([self._loss], gradients):
                    if (report := nan_in(outputs, now)) is not None:
                        return f"They first appear here:\n{report}"
        return "nn.find_nan(loss) shows where NaN first appear"

    def _tell_of_unused_change(self) -> None:
        name, self._solver.unused_change = self._solver.unused_change, ""
        warn_user(f"train_step: the call of the solver's {name} has no effect: it changes the gradients of backward(), "
                  "and a training step computes its own. Pass weight_decay=, clip_grad_by_norm= or "
                  "clip_grad_by_global_norm= to nn.train_step")

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("cannot pickle or copy a training step, an executable of this process. Restore parameters and "
                        "solver from a checkpoint, and call nn.train_step in the process that runs it")

    def __repr__(self) -> str:
        return f"<training step, {len(self._input_specs)} inputs, {self._solver!r}>"


_dtype_of, _need_grad_of = attrgetter("dtype"), Variable.need_grad_set.fget
