"""Training steps: forward, gradient and update of a graph as one executable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
import optax

from .autodiff.grad import emitted
from .autodiff.request import Request
from .execution.by_shape import ByShape
from .execution.compiled import has_tiers
from .execution.convert import check_read
from .execution.fingerprint import digest_of, structure_of
from .execution.forward import device_of
from .execution.lower import Linearized, linearize, lower
from .execution.program import Program
from .execution.recompilations import watched
from .graph import NdArray, Variable, contained, leaves_of, switched
from .graph.leaf import arrays_of
from .graph.place import warn_user
from .graph.variable import leaf_of
from .solvers.gradients import Arrays
from .solvers.in_place import InPlaceUpdate, Results
from .solvers.loss_scale import DynamicLossScale
from .solvers.solver import Solver
from .training_inputs import check_count, fitting, plain


class TrainStep:
    """A training step of a fixed graph. Made by `train_step`.

    Calling it with the inputs' values (arrays, or else Variables, NdArrays, numbers or lists) moves the
    parameters by one step and returns the loss before it, as a `jax.Array`.

    Parameters, the solver's state and what the graph updates change at one moment, when all of them have been handed
    out: an error or an interrupt finds them as they were before the step or as they are after it, and so do signal
    handlers and other threads that read them. Threads that call steps of one solver take turns.
    """

    __slots__ = (
        "_dynamic",
        "_gradients",
        "_input_names",
        "_input_specs",
        "_kinds",
        "_live",
        "_loss_dtype",
        "_places",
        "_program",
        "_solver",
        "_update",
        "_updated",
        "_variables",
    )

    def __init__(
        self,
        loss: Variable,
        parameters: dict[str, Variable],
        solver: Solver,
        inputs: list[Variable],
        recompute: Any,
        wait_for_best: bool,
    ) -> None:
        if [(n, id(p)) for n, p in solver.get_parameters().items()] != [(n, id(p)) for n, p in parameters.items()]:
            solver.set_parameters(parameters, retain_state=True)
        self._solver = solver
        self._loss_dtype = loss.dtype
        self._variables = solver._variables
        self._input_specs = [x.spec for x in inputs]
        self._input_names = [f"input {i} ({x.name!r})" if x.name else f"input {i}" for i, x in enumerate(inputs)]

        owners = {id(p.cell): i for i, p in enumerate(self._variables)}
        targets = self._targets(loss, owners)
        reached = {i for _, i in targets}
        idle = [repr(name) for i, name in enumerate(parameters) if i not in reached]
        if idle:
            warn_user(f"train_step: the loss does not depend on {', '.join(idle)}; leave out what is not trained, "
                      "or check that the graph was built from these Variables")
        seed = seed_for(loss, solver)
        self._dynamic = isinstance(solver.scaling, DynamicLossScale)
        device = device_of([loss])
        leaves = [*[x for x, _ in targets], *inputs]

        def linearized(gradients: list[Variable]) -> Linearized:
            return linearize([loss, *gradients], first=leaves, device=device)

        with switched(auto_forward=False, no_grad=False):
            request = Request(
                [loss], [x for x, _ in targets], [seed], recompute=recompute, final=True,
                program_of=lambda found: linearized(found).program, runs=False,
            )
            gradients = emitted(request).gradients
        linear = linearized(gradients)
        check_read(linear.program, inputs, len(targets))
        self._gradients = [[1 + k for k, (_, i) in enumerate(targets) if i == n] for n in range(len(parameters))]
        self._updated = linear.updated
        for x in self._updated:
            if id(x.cell) in owners:
                name = list(parameters)[owners[id(x.cell)]]
                raise ValueError(f"parameters: {name!r} is written by the graph itself (a running statistic, say), "
                                 "so it cannot be trained")
        self._program = lower(linear.program)

        numbers = {id(x): j for j, x in enumerate(inputs)}
        self._live: list[Variable] = []
        self._places: list[tuple[int, int]] = []
        for x in linear.leaves:
            if id(x) in numbers:
                self._places.append((1, numbers[id(x)]))
            elif id(x.cell) in owners:
                self._places.append((0, owners[id(x.cell)]))
            elif x is seed and self._dynamic:
                self._places.append((3, 0))
            else:
                self._places.append((2, len(self._live)))
                self._live.append(x)
        opaque = linear.program.opaque or solver.opaque
        self._kinds: set[Any] = set()  # of arguments, as far as they need not be converted
        self._update = InPlaceUpdate(
            self._run, solver, self._updated, linear.program.needs_x64, device, opaque,
            is_large=has_tiers(linear.program) and not wait_for_best, compiled=watched(linear.program),
            structure=self._structure_of(linear.program),
        )

    def _structure_of(self, program: Program) -> Callable[[], bytes | None]:
        """What gives a digest of the step, the same in every process; None where there is none."""

        def structure() -> bytes | None:
            computed, moved = structure_of(program), self._solver.structure("update")
            if computed is None or moved is None:
                return None
            inputs = [(spec.shape, spec.dtype.name) for spec in self._input_specs]
            arranged = self._places, self._gradients, inputs, self._loss_dtype.name, self._dynamic
            return digest_of(b"training step", computed, moved, str(arranged).encode())

        return structure

    def _targets(self, loss: Variable, owners: dict[int, int]) -> list[tuple[Variable, int]]:
        """The leaves through which the loss depends on parameters, each with the number of its parameter.

        A parameter may be there as Variables that share its data (`fix_parameters`); those without
        `need_grad` stand for constants.
        """
        own = {id(p) for p in self._variables}
        return [
            (x, owners[id(x.cell)])
            for x in leaves_of([loss])
            if id(x) in own or (id(x.cell) in owners and x._need_grad)
        ]

    def __call__(self, *arrays: Any) -> jax.Array:
        try:
            kind = (*map(type, arrays), *map(_dtype_of, arrays))
        except AttributeError:  # a list or a number
            kind = ()
        if kind not in self._kinds:
            arrays = self._converted(arrays)
            kind = (*map(type, arrays), *map(_dtype_of, arrays))
            self._kinds.add(kind)
        solver = self._solver
        with solver.updating:
            if solver._variables is not self._variables:
                raise RuntimeError("the solver was given other parameters, or another loss scaling, after this "
                                   "training step was made")
            live = self._live and arrays_of(self._live)
            if live:
                kind += (*map(type, live), *map(_dtype_of, live))
            loss: jax.Array = self._update(kind, (solver._rate, arrays, live))
        return loss

    def _converted(self, values: Arrays) -> Arrays:
        """The values of the inputs as arrays."""
        check_count(values, self._input_specs)
        return tuple([
            value if isinstance(value, np.ndarray | jax.Array) else plain(value, spec, name)
            for value, spec, name in zip(values, self._input_specs, self._input_names, strict=True)
        ])

    def _run(self, params: Arrays, state: Arrays, arguments: tuple[Any, Arrays, list[Any]]) -> Results:
        """The loss, what the graph updates, the new parameters and the new state."""
        lr, arrays, live = arguments
        solver = self._solver
        tree = jax.tree.unflatten(solver._structure, state)
        scale = [tree.loss_scale.scale.astype(self._loss_dtype)] if self._dynamic else []
        sources = (params, fitting(arrays, self._input_specs, self._input_names), live, scale)
        results = self._program(*[sources[k][i] for k, i in self._places])
        grads = [
            sum([results[k] for k in numbers[1:]], results[numbers[0]]) if numbers else jnp.zeros_like(p)
            for numbers, p in zip(self._gradients, params, strict=True)
        ]
        new, tree = solver.pure_update(tuple(params), tuple(grads), tree, lr)
        updates = results[1 + sum(map(len, self._gradients)) :]
        return results[0], tuple(updates), tuple(new), tuple(jax.tree.leaves(tree))

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a training step cannot be pickled or copied: it is an executable of this process. Pickle the "
                        "solver, which holds parameters and state, and call nn.train_step in the process where it runs")

    def __repr__(self) -> str:
        return f"<training step, {len(self._input_specs)} inputs, {self._solver!r}>"


class TrainStepByShape:
    """Training steps of the graphs that a function builds, one for each combination of shapes and dtypes in which the
    inputs come. Made by `train_step`; called as a `TrainStep`. All have one solver, with its parameters and state."""

    __slots__ = ("_graphs", "_named", "_parameters", "_recompute", "_solver", "_wait_for_best")

    def __init__(
        self, loss: Callable[..., Variable], parameters: Any, solver: Solver, recompute: Any, wait_for_best: bool
    ) -> None:
        named = None if callable(parameters) else _named(parameters)
        self._parameters: Callable[[], Any] = parameters if named is None else lambda: named
        self._named: dict[str, Variable] | None = None
        self._solver = solver
        self._recompute = recompute
        self._wait_for_best = wait_for_best
        self._graphs = ByShape(loss, self._step_of)

    def __call__(self, *arrays: Any) -> jax.Array:
        step, arguments = self._graphs.called_with(arrays)
        return step(*arguments)

    @contained
    def _step_of(self, loss: Variable, inputs: list[Variable]) -> TrainStep:
        named = _named(self._graphs.in_its_scopes(self._parameters))
        first = self._named = self._named or named
        if [(name, id(p.cell)) for name, p in named.items()] != [(name, id(p.cell)) for name, p in first.items()]:
            names = ", ".join(map(repr, sorted(named.keys() ^ first.keys()))) or "new ones by the same names"
            raise ValueError(f"parameters: the graph for inputs {', '.join([str(x.spec) for x in inputs])} has others "
                             f"than the first one ({names}), so they would not be trained")
        return _checked_step(loss, first, self._solver, inputs, self._recompute, self._wait_for_best)

    def __repr__(self) -> str:
        return f"<training step by shape, {self._solver!r}>"


Parameters = Mapping[str, Variable] | Iterable[Variable]


@overload
def train_step(
    loss: Variable,
    parameters: Parameters,
    optimizer: Solver | optax.GradientTransformation,
    inputs: Variable | Iterable[Variable] = (),
    recompute: Any = None,
) -> TrainStep: ...


@overload
def train_step(
    loss: Callable[..., Variable],
    parameters: Parameters | Callable[[], Parameters],
    optimizer: Solver | optax.GradientTransformation,
    *,
    recompute: Any = None,
    wait_for_best: bool = False,
) -> TrainStepByShape: ...


@contained
def train_step(
    loss: Variable | Callable[..., Variable],
    parameters: Parameters | Callable[[], Parameters],
    optimizer: Solver | optax.GradientTransformation,
    inputs: Variable | Iterable[Variable] = (),
    recompute: Any = None,
    wait_for_best: bool = False,
) -> TrainStep | TrainStepByShape:
    """Forward, gradient and update of the graph of `loss` as one executable, for a training loop.

    The graph is differentiated once, here. At each call of the result parameters and all other leaves are
    read from their cells, so values that were set in between count; random functions draw anew, and
    running statistics are updated. Parameters and state are updated in place, in memory that the step before
    used; an array that something else still refers to is copied first.

        step = nn.train_step(loss, nn.get_parameters(), S.Adam(), inputs=[x, t])
        for images, labels in batches:
            value = step(images, labels)

    The shapes of a graph are fixed. Where they differ, as those of a last, shorter batch do, `loss` is a function that
    builds the graph. It is called with Variables of the shapes and dtypes that the arrays of a call have, once for each
    combination of them, in the scopes in which `train_step` was called; parameters and state are the same for all:

        step = nn.train_step(lambda x, t: F.mean(F.squared_error(network(x), t)), nn.get_parameters, S.Adam())

    Args:
        loss: A floating Variable of shape (), or a function of Variables that returns one.
        parameters: Variables to train, by name or in a list: leaves of floating dtypes. Beside a function that builds
            it may be a function too, which is called once the first graph has made them: `nn.get_parameters`.
        optimizer: A solver, which gets these parameters and may have a state for them already; or an
            optax transformation. A solver with loss scaling scales the gradients of this step too; the loss that is
            returned is not scaled. Of a solver the step uses the update alone: `weight_decay`,
            `clip_grad_by_norm` and `scale_grad` change gradients that `backward()` has left, and there are
            none here. Chain what is wanted in optax instead, as in `Solver.from_optax(optax.chain(
            optax.clip_by_global_norm(1.0), optax.adam(1e-3)))`.
        inputs: Variables whose values are given at each call, of their shapes. A function that builds has none.
        recompute: Which forward values are computed again, so that they need not be kept, as in `nn.grad`.
        wait_for_best: Whether the first call waits for the best executable. Else a large step starts with one that is
            compiled cheaply, and updates copies of parameters and state until the best one is ready.

    Raises:
        TypeError: Something is of the wrong kind.
        ValueError: The loss is not a scalar; a parameter is not a leaf, occurs twice, is an input, or is
            updated by the graph itself; the loss does not depend on an input; its dtype does not hold the solver's
            loss scale; or a function builds graphs with different parameters.

    Warns:
        UserWarning: The loss does not depend on some of the parameters.
    """
    listed = [inputs] if isinstance(inputs, Variable) else list(inputs)
    if not isinstance(loss, Variable) and callable(loss):
        if listed:
            raise TypeError("inputs: a function that builds the graph is given them at each call; leave them out")
        return TrainStepByShape(loss, parameters, _solver(optimizer), recompute, wait_for_best)
    return _checked_step(loss, parameters, optimizer, listed, recompute, wait_for_best)


def _checked_step(
    loss: Any, parameters: Any, optimizer: Any, inputs: list[Variable], recompute: Any, wait_for_best: bool
) -> TrainStep:
    """The training step of a graph, whose parts are checked."""
    if not isinstance(loss, Variable):
        raise TypeError(f"loss: expected a Variable, got {type(loss).__name__}")
    if loss.shape != ():
        raise ValueError(f"loss: must be a scalar, of shape (), got shape {loss.shape}; take its sum or mean")
    if not loss.spec.differentiable:
        raise TypeError(f"loss: is {loss.dtype.name}; only floating dtypes can be differentiated")
    named = _named(parameters)
    for i, x in enumerate(inputs):
        if not isinstance(x, Variable):
            raise TypeError(f"inputs[{i}]: expected a Variable, got {type(x).__name__}")
    _check_distinct(named, inputs)
    return TrainStep(loss, named, _solver(optimizer), inputs, recompute, wait_for_best)


def _solver(optimizer: Any) -> Solver:
    return optimizer if isinstance(optimizer, Solver) else Solver.from_optax(optimizer)


def _named(parameters: Any) -> dict[str, Variable]:
    if isinstance(parameters, Variable):
        parameters = [parameters]
    named = dict(parameters) if isinstance(parameters, Mapping) else {str(i): p for i, p in enumerate(parameters)}
    if not named:
        raise ValueError("parameters: there are none")
    for name, p in named.items():
        if not isinstance(p, Variable):
            raise TypeError(f"parameters: {name!r} must be a Variable, got {type(p).__name__}")
        if p.parent is not None:
            raise ValueError(f"parameters: {name!r} is an output of {p.parent.op.name}; only leaves can be trained")
    return named


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


def seed_for(loss: Variable, solver: Solver) -> Variable | None:
    """The gradient at the loss, which is what the solver's loss scaling multiplies it by; None for 1.

    It is a leaf: a number in the graph would be moved to where it does the gradients no good.

    Raises:
        ValueError: The dtype of the loss does not hold the scale.
    """
    scaling = solver.scaling
    if scaling is None:
        return None
    # A dynamic one that is too large is found out.
    lowest = scaling.minimum if isinstance(scaling, DynamicLossScale) else scaling
    with np.errstate(over="ignore"):
        held = float(np.asarray(lowest).astype(loss.dtype))
    if held != lowest:
        raise ValueError(f"loss: {loss.dtype.name} does not hold the loss scale {lowest:g}; "
                         "take the loss in float32, or another scale")
    if isinstance(scaling, DynamicLossScale):
        return leaf_of(NdArray.of_spec(loss.spec))
    return Variable.from_numpy_array(scaling, dtype=loss.dtype)


_dtype_of = attrgetter("dtype")
