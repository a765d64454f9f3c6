"""`nn.train_step`: forward, gradient and update of a graph as one executable, with its arguments checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar, Unpack, overload

import jax
import optax

import nngrad.functions as F

from ..extend import Variable, contained, differentiable, warn_user
from ..jax.to_jax import ByShape
from ..solvers.solver import Solver
from .modules import Module, named_parameters
from .moving_average import MovingAverage
from .options import Auxiliary, Decay, OnNan, StepOptions
from .step import TrainStep


def checked_step(
    loss: Any, aux: Any, parameters: Any, optimizer: Any, inputs: list[Variable], options: StepOptions
) -> TrainStep[Any]:
    """The training step of a graph, after checking all arguments."""
    solver = solver_of(optimizer)
    residuals = None
    if solver.takes_residuals:
        _check_takes_residuals(solver, options)
        residuals = differentiable(loss, "loss")
        if [r.shape for r in residuals] == [()]:
            raise ValueError(f"loss: S.{solver.name} takes residuals, and sums their squares itself, got one number. "
                             "Pass the residuals instead of their mean or sum of squares; a single one has shape (1,)")
        if len({r.dtype for r in residuals}) != 1:
            raise TypeError("loss: residuals must have the same dtype; cast them with F.cast")
        loss = F.mul_scalar(F.add_n(*[F.sum(r**2) for r in residuals]), val=0.5)
    if not isinstance(loss, Variable):
        raise TypeError(f"loss: expected a Variable, got {type(loss).__name__}")
    if loss.shape != ():
        raise ValueError(f"loss: must be a scalar, got shape {loss.shape}; take its sum or mean")
    if not loss.spec.differentiable:
        raise TypeError(f"loss: must have a floating dtype, got {loss.dtype.name}")
    auxiliary = None if aux is None else Auxiliary(aux)
    named = _trained(named_parameters(parameters))
    for i, x in enumerate(inputs):
        if not isinstance(x, Variable):
            raise TypeError(f"inputs[{i}]: expected a Variable, got {type(x).__name__}")
    _check_distinct(named, inputs)
    return TrainStep(loss, auxiliary, named, solver, inputs, options, residuals)


def _trained(named: dict[str, Variable]) -> dict[str, Variable]:
    """The parameters with `need_grad`; a warning names the others."""
    frozen = [repr(name) for name, p in named.items() if not p.need_grad]
    if len(frozen) == len(named):
        raise ValueError(f"parameters: none is trained, because all have need_grad=False: {', '.join(frozen)}")
    if frozen:
        warn_user(f"train_step: need_grad of {', '.join(frozen)} is False, so the step leaves them as they are; set it "
                  "to True, or leave them out of parameters")
    return {name: p for name, p in named.items() if p.need_grad}


def solver_of(optimizer: Any) -> Solver:
    if not isinstance(optimizer, Solver | optax.GradientTransformation):
        raise TypeError(
            "optimizer: expected a Solver of nngrad.solvers, or a GradientTransformation of optax's, got "
            f"{type(optimizer).__name__}. For groups of parameters, by their names, there is optax.multi_transform("
            "{label: optax.adam(1e-3), ...}, {name: label, ...})"
        )
    return optimizer if isinstance(optimizer, Solver) else Solver.from_optax(optimizer)


def _check_takes_residuals(solver: Solver, options: StepOptions) -> None:
    """Raise an error unless a solver that takes residuals supports the options."""
    name = solver.name
    for option in ("clip_grad_by_value", "clip_grad_by_norm", "clip_grad_by_global_norm", "weight_decay"):
        if getattr(options, option) is not None:
            raise ValueError(f"{option}: must be None for S.{name}, which does not move along gradients; use more "
                             "damping, or add a residual for what should be small")


def _check_distinct(parameters: dict[str, Variable], inputs: list[Variable]) -> None:
    seen: dict[int, str] = {}
    for name, p in parameters.items():
        other = seen.setdefault(id(p.cell), name)
        if other != name:
            raise ValueError(f"parameters: {name!r} and {other!r} are the same or share their data")
    for i, x in enumerate(inputs):
        if x.parent is None and id(x.cell) in seen:
            raise ValueError(f"inputs[{i}]: is the parameter {seen[id(x.cell)]!r} or shares its data")
    if len({id(x) for x in inputs}) != len(inputs):
        raise ValueError("inputs: the same Variable is given twice")


R = TypeVar("R", covariant=True)


class TrainStepByShape(Generic[R]):
    """Training steps of the graphs that a function builds, one per combination of input shapes and dtypes. Made by
    `train_step`; called like a `TrainStep`. All share one solver, with its parameters and state."""

    def __init__(
        self, loss: Callable[..., Any], aux: Any, parameters: Any, solver: Solver, options: StepOptions
    ) -> None:
        if isinstance(parameters, Module):
            parameters = parameters.get_parameters  # which has them after the first graph
        owner = getattr(parameters, "__self__", None)
        self.module = owner if isinstance(owner, Module) else None
        """The Module whose `get_parameters` gives the parameters."""
        named = None if callable(parameters) else named_parameters(parameters)
        self._parameters: Callable[[], Any] = parameters if named is None else lambda: named
        self._named: dict[str, Variable] | None = None
        self._aux = aux
        self._solver = solver
        self._options = options
        self._graphs = ByShape(loss, self._step_of)

    def __call__(self, *arrays: Any) -> R:
        step, arguments = self._graphs.called_with(arrays)
        return step(*arguments)

    @contained
    def _step_of(self, built: Any, inputs: list[Variable]) -> TrainStep[R]:
        loss, aux = built if isinstance(built, tuple) and len(built) == 2 else (built, self._aux)
        if aux is not self._aux and self._aux is not None:
            raise TypeError("aux: must be None, because the function that builds the graph returns auxiliary results")
        named = named_parameters(self._graphs.in_its_scopes(self._parameters))
        first = self._named = self._named or named
        if [(name, id(p.cell)) for name, p in named.items()] != [(name, id(p.cell)) for name, p in first.items()]:
            names = ", ".join(map(repr, sorted(named.keys() ^ first.keys()))) or "new ones with the same names"
            raise ValueError(f"parameters: the graph for inputs {', '.join([str(x.spec) for x in inputs])} has other "
                             f"parameters than the first ({names}), which would not be trained")
        return checked_step(loss, aux, first, self._solver, inputs, self._options)

    def __repr__(self) -> str:
        return f"<training step by shape, {self._solver!r}>"


Parameters = Mapping[str, Variable] | Iterable[Variable]


class _Options(TypedDict, total=False):
    """The keyword arguments of `train_step`, for its overloads."""

    clip_grad_by_value: float | None
    clip_grad_by_norm: float | None
    clip_grad_by_global_norm: float | None
    weight_decay: Decay | None
    on_nan: OnNan
    averages: MovingAverage | Iterable[MovingAverage]


_Optimizer: TypeAlias = "Solver | optax.GradientTransformation"
_Inputs: TypeAlias = Variable | Iterable[Variable]
_Deferred: TypeAlias = Parameters | Callable[[], Parameters]
_Loss: TypeAlias = Variable | list[Variable]
_WithAux: TypeAlias = tuple[jax.Array, Any]


@overload
def train_step(
    loss: _Loss, parameters: Parameters, optimizer: _Optimizer, inputs: _Inputs = (), recompute: Any = None,
    *, aux: None = None, **options: Unpack[_Options],
) -> TrainStep[jax.Array]: ...
@overload
def train_step(
    loss: _Loss, parameters: Parameters, optimizer: _Optimizer, inputs: _Inputs = (), recompute: Any = None,
    *, aux: Any, **options: Unpack[_Options],
) -> TrainStep[_WithAux]: ...
@overload
def train_step(
    loss: Callable[..., _Loss], parameters: _Deferred, optimizer: _Optimizer, *, recompute: Any = None,
    aux: None = None, **options: Unpack[_Options],
) -> TrainStepByShape[jax.Array]: ...
@overload
def train_step(
    loss: Callable[..., tuple[_Loss, Any]], parameters: _Deferred, optimizer: _Optimizer, *, recompute: Any = None,
    **options: Unpack[_Options],
) -> TrainStepByShape[_WithAux]: ...
@overload
def train_step(
    loss: Callable[..., _Loss], parameters: _Deferred, optimizer: _Optimizer, *, recompute: Any = None,
    aux: Any, **options: Unpack[_Options],
) -> TrainStepByShape[_WithAux]: ...  # fmt: skip
@contained
def train_step(
    loss: _Loss | Callable[..., _Loss | tuple[_Loss, Any]],
    parameters: Parameters | Callable[[], Parameters],
    optimizer: Any,
    inputs: Variable | Iterable[Variable] = (),
    recompute: Any = None,
    *,
    aux: Any = None,
    clip_grad_by_value: float | None = None,
    clip_grad_by_norm: float | None = None,
    clip_grad_by_global_norm: float | None = None,
    weight_decay: Decay | None = None,
    on_nan: OnNan = None,
    averages: MovingAverage | Iterable[MovingAverage] = (),
) -> TrainStep[Any] | TrainStepByShape[Any]:
    """Forward, gradient and update of the graph of `loss` as one executable, for a training loop.

    The graph is differentiated once, here. Each call of the result reads the current values of parameters and all other
    leaves, so it sees values that were set in between; random functions draw anew, and running statistics are updated.
    Parameters and state are donated and updated in place; an array with other references is copied first.

        step = nn.train_step(loss, nn.get_parameters(), S.Adam(), inputs=[x, t])
        for images, labels in batches:
            value = step(images, labels)

    The shapes of a graph are fixed. If they vary, as with a shorter last batch, let `loss` be a function that builds
    the graph. It is called with Variables of the shapes and dtypes of a call's arrays, once for each combination, in
    the scopes in which `train_step` was called; all graphs share parameters and state:

        step = nn.train_step(lambda x, t: F.mean(F.squared_error(network(x), t)), nn.get_parameters, S.Adam())

    A step processes gradients in this order: it divides them by the loss scale, clips their elements to
    `clip_grad_by_value`, each gradient to `clip_grad_by_norm`, all together to `clip_grad_by_global_norm`, adds
    `weight_decay`, and moves the parameters.

    Args:
        loss: A floating Variable of shape (), or a function of Variables that returns one, or one and `aux`. For
            `S.GaussNewton` pass the residuals instead, a Variable of any shape or a list of them; the loss is half the
            sum of their squares.
        parameters: Variables to train, by name or in a list, a pytree of them or a Module: leaves of floating dtypes.
            If `loss` is a function, this may be a function too, which is called after the first graph has created them:
            `nn.get_parameters`; a Module is asked then, too.
        optimizer: A solver, which gets these parameters and may have a state for them already; or an optax
            transformation. A solver with loss scaling scales the gradients of this step too; the returned loss is not
            scaled. The step uses only the solver's update: its methods `weight_decay`, `clip_grad_by_norm` and
            `scale_grad` change gradients left by `backward()`, and have no effect here; use the arguments below.
        inputs: Variables whose values are passed to each call, with the same shapes. None if `loss` is a function.
        recompute: Which forward values to rematerialise rather than keep, as in `nn.grad`.
        aux: Variables of any shape and dtype to return beside the loss, in lists, tuples and dicts: the step then
            returns `(loss, aux)`, in the same structure. It may contain names: 'gradient_norm' is the L2 norm of all
            gradients together, before clipping and without a loss scale; 'gradient_norms' is a dict of the norms by
            parameter; 'parameter_norm' is that of the parameters before the step; 'finite' tells whether loss and
            gradients are finite.
        clip_grad_by_value: Clip the elements of gradients to the range from minus this to this.
        clip_grad_by_norm: Scale each gradient with a larger L2 norm to this norm, separately for each parameter.
        clip_grad_by_global_norm: Scale all gradients together to this norm if their joint L2 norm is larger.
        weight_decay: The factor of the parameter in the term that is added to its gradient; or a function from a
            parameter's name to its factor.
        on_nan: What to do if the loss or a gradient is infinite or NaN. 'skip': leave parameters, state and leaves
            updated by the graph unchanged. 'raise': also raise a FloatingPointError that says what it was and, except
            on a mesh, which function made the first one; each call waits for its results. None: no check. A dynamic
            loss scale skips such steps by itself; with it, 'raise' raises if the loss is affected, or the scale cannot
            become smaller.
        averages: Moving averages of parameters, or of values that the graph updates, to update in the step.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: The loss is not a scalar; a parameter is not a leaf, occurs twice, is an input, or is updated by the
            graph itself; the loss does not depend on an input; its dtype cannot hold the solver's loss scale; a
            function builds graphs with different parameters; an average follows values that this step does not change;
            or a number is out of range.

    Warns:
        UserWarning: The loss does not depend on some of the parameters; the graph computes in float16, and the solver
            has no loss scale; or, at a call, methods of the solver have changed gradients that the step does not use.
    """
    listed = [inputs] if isinstance(inputs, Variable) else list(inputs)
    options = StepOptions(
        recompute, clip_grad_by_value, clip_grad_by_norm, clip_grad_by_global_norm, weight_decay, on_nan, averages,
    )  # fmt: skip
    if not isinstance(loss, Variable) and callable(loss):
        if listed:
            raise TypeError("inputs: must be left out for a function that builds the graph; it gets them at each call")
        return TrainStepByShape(loss, aux, parameters, solver_of(optimizer), options)
    step: TrainStep[Any] = checked_step(loss, aux, parameters, optimizer, listed, options)
    step.module = parameters if isinstance(parameters, Module) else None
    return step
