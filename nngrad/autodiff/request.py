"""Requests to grad() and backward() in one form, with the gradients given in them; their tasks as graphs; and the
derivations that results record."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nngrad.functions as F
from backward_registry import registry

from ..functions.array import in_dtype
from ..graph import Function, NdArray, Variable, among, as_variable, build_options, contained, functions_of
from ..graph.messages import warn_user
from ..graph.spec import DType, x64_if
from ..graph.variable import leaf_of
from ..rewrite.builder import emitting

Seeds = Sequence[Variable | None]

_UNREACHABLE = ("zero", "none", "raise")


class Request(NamedTuple):
    """A request for gradients: of <seeds, outputs> with respect to each of `inputs`."""

    outputs: Sequence[Variable]
    inputs: Sequence[Variable]
    seeds: Seeds
    """The gradient at each output; None for ones."""
    stop_gradients: Sequence[Variable] = ()
    """Variables that gradients do not pass, besides those with `need_grad` set to False."""
    retain: bool = False
    """Whether the gradient of every Variable on the path is also wanted."""
    unreachable: str = "zero"
    """How to treat an input that no gradient can reach."""
    recompute: Any = None
    """The rematerialisation policy."""
    runs_as: Callable[[list[Variable]], Any] | None = None
    """Makes the program for which to plan rematerialisation from gradients; None: one that returns outputs and
    gradients."""
    keep: bool = False
    """Whether each gradient is kept at its input."""
    bind: bool = False
    """Whether each gets the cell of its input's gradient."""
    further: bool = True
    """Whether a further gradient may pass them."""
    retained_at: frozenset[int] | None = None  # the ids of Variables whose gradients are wanted; None: all

    @property
    def handled(self) -> tuple[bool, bool, bool]:
        """How the gradients are handed out."""
        return self.keep, self.bind, self.further


def requested(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any,
    loss_scale: Any,
    stop_gradients: Any,
    retain: bool,
    unreachable: Any,
    recompute: Any,
) -> Request:
    """The request for the arguments of `nn.grad`, checked."""
    outputs, inputs = differentiable(outputs, "outputs"), variables(inputs, "inputs")
    if unreachable not in _UNREACHABLE:
        raise ValueError(f"unreachable: expected {' or '.join(map(repr, _UNREACHABLE))}, got {unreachable!r}")
    for i, x in enumerate(inputs):
        if not x.spec.differentiable and unreachable != "none":
            raise TypeError(f"inputs[{i}] is {x.dtype.name}, which has no gradient; leave it out, make its data "
                            "floating, or get None for it with unreachable='none'")
    seeds: Seeds = [None] * len(outputs)
    if grad_outputs is not None or loss_scale is not None:
        seeds = _given_gradients(outputs, grad_outputs, loss_scale)
    return Request(
        outputs, inputs, seeds, variables(stop_gradients, "stop_gradients"), retain, unreachable, recompute
    )


@contained
def _given_gradients(outputs: list[Variable], grad_outputs: Any, loss_scale: Any) -> Seeds:
    with emitting([], 1):
        return scaled_seeds(outputs, seeds_of(outputs, grad_outputs), loss_scale)


def listed(container: Any) -> list[Any]:
    """The items of a container, also of containers in it, in order: those of lists, dicts, scopes and other iterables,
    a Module's trained parameters, and the leaves of other pytrees. Anything else is the only item."""
    if container.__class__ in (list, tuple) and {*map(type, container)} <= {Variable}:
        return [*container]  # most often, without a look at each
    items: list[Any] = []
    waiting = [container]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Variable | str | bytes) or hasattr(item, "shape"):
            items.append(item)
            continue
        if hasattr(item, "get_parameters"):
            item = item.get_parameters()
        if isinstance(item, Mapping):
            item = item.values()
        if isinstance(item, Iterable):
            waiting += reversed(list(item))
        elif item is None or jax.tree_util.all_leaves([item]):
            items.append(item)
        else:
            waiting += reversed(jax.tree.leaves(item))
    return items


def variables(container: Any, name: str) -> list[Variable]:
    """The Variables in a container, as a list."""
    items = listed(container)
    for i, x in enumerate(items):
        if x is container and not isinstance(x, Variable):
            raise TypeError(f"{name}: expected a Variable or a list of them, got {type(container).__name__}")
        if not isinstance(x, Variable):
            raise TypeError(f"{name}[{i}]: expected a Variable, got {type(x).__name__}")
    return items


def differentiable(container: Any, name: str) -> list[Variable]:
    """`container` as a list of Variables of floating dtypes."""
    items = variables(container, name)
    for i, x in enumerate(items):
        if not x.spec.differentiable:
            raise TypeError(f"{name}[{i}] is {x.dtype.name}; only floating dtypes can be differentiated")
    return items


def checked_persistent(flags: Iterable[bool], outputs: Sequence[Variable]) -> list[bool]:
    """For each output, True if it is to be persistent; an empty list if nothing was given."""
    persistent = list(map(bool, flags))
    if persistent and len(persistent) != len(outputs):
        raise ValueError(
            f"persistent_outputs: expected one for each of the {len(outputs)} outputs, or none, got {len(persistent)}"
        )
    return persistent


# ---------------------------------------------------------------- given gradients

_NUMBERS = int | float | np.integer | np.floating


def seeds_of(outputs: list[Variable], grad_outputs: Any) -> list[Variable | None]:
    """The gradient at each output, as a Variable, or None for ones."""
    grad_outputs = one_each(outputs, grad_outputs)
    return [seed_of(y, gy, f"grad_outputs[{i}]") for i, (y, gy) in enumerate(zip(outputs, grad_outputs, strict=True))]


def one_each(outputs: list[Variable], grad_outputs: Any) -> list[Any]:
    """One of `grad_outputs` for each output, unconverted."""
    if grad_outputs is None or isinstance(grad_outputs, _NUMBERS):
        grad_outputs = [grad_outputs] * len(outputs)
    elif not isinstance(grad_outputs, list | tuple):
        grad_outputs = [grad_outputs]
    if len(grad_outputs) != len(outputs):
        raise ValueError(
            f"grad_outputs: expected a list with one for each of the {len(outputs)} outputs, got {len(grad_outputs)}"
        )
    return list(grad_outputs)


def seed_of(y: Variable, gy: Any, name: str, role: str = "output") -> Variable | None:
    """The gradient `gy` at `y` as a Variable, or None."""
    if gy is None:
        return None
    if isinstance(gy, bool | str | bytes | dict):
        raise TypeError(f"{name}: expected None, a number, an array, an NdArray or a Variable, got {gy!r}")
    if isinstance(gy, _NUMBERS):
        try:
            seed: Variable = F.constant(val=float(gy), shape=y.shape, dtype=y.dtype)
        except OverflowError:
            raise ValueError(f"{name}: {gy!r:.80} is too large") from None
        return seed
    seed = leaf_of(gy) if isinstance(gy, NdArray) else as_variable(gy, name, floating=y.dtype)
    if seed.shape == () and seed.parent is None and not isinstance(gy, Variable):
        seed = F.broadcast(seed, shape=y.shape)
    if seed.shape != y.shape:
        raise ValueError(f"{name}: must have the shape of its {role}, {y.shape}, got {seed.shape}")
    return in_dtype(seed, y.dtype)


def scaled_seeds(outputs: list[Variable], seeds: list[Variable | None], loss_scale: Any) -> list[Variable | None]:
    """The gradients at the outputs, each multiplied by `loss_scale`.

    A number becomes a leaf: as a number in the graph it would move to a place where it does not help the gradients, and
    each new value would be a new structure to compile.
    """
    if loss_scale is None:
        return seeds
    return [_scaled(y, seed, loss_scale) for y, seed in zip(outputs, seeds, strict=True)]


def _scaled(y: Variable, seed: Variable | None, loss_scale: Any) -> Variable:
    if isinstance(loss_scale, Variable):
        if loss_scale.shape != () or not loss_scale.spec.differentiable:
            raise ValueError(f"loss_scale: expected a number or a floating Variable of shape (), got {loss_scale.spec}")
        scale = in_dtype(loss_scale, y.dtype)
    else:
        scale = Variable.from_numpy_array(held_scale(loss_scale, y.dtype), dtype=y.dtype)
    result: Variable = F.broadcast(scale, shape=y.shape) if seed is None else seed * scale
    return result


def held_scale(loss_scale: Any, dtype: DType) -> Any:
    """`loss_scale` as an array of shape () in `dtype`, which must hold it. A JAX array, such as a solver's dynamic
    scale, is not checked, since that would wait for the device: the solver detects a scale that is too large."""
    if isinstance(loss_scale, jax.Array) and loss_scale.shape == () and jnp.issubdtype(loss_scale.dtype, jnp.floating):
        with x64_if(dtype.itemsize == 8):
            return loss_scale.astype(dtype)
    if isinstance(loss_scale, np.ndarray) and loss_scale.shape == ():
        loss_scale = loss_scale[()]
    if isinstance(loss_scale, bool) or not isinstance(loss_scale, _NUMBERS):
        raise TypeError(f"loss_scale: expected a number, got {loss_scale!r}")
    if not 0 < loss_scale < float("inf"):
        raise ValueError(f"loss_scale: must be positive and finite, got {loss_scale!r}")
    with np.errstate(over="ignore"):
        scale = np.asarray(loss_scale).astype(dtype)
    if not 0 < float(scale) < float("inf"):
        raise ValueError(f"loss_scale: {loss_scale:g} does not fit in {dtype.name}; compute the loss in float32")
    return scale


def seed_array(output: Variable, gy: Any, loss_scale: float | None, name: str) -> Any:
    """The gradient at `output` as an array, or None for ones."""
    if not output.spec.differentiable:
        raise TypeError(f"backward: the Variable is {output.dtype.name}; only floating dtypes can be differentiated")
    if gy is None and loss_scale is None:
        return None
    if gy is None or (isinstance(gy, _NUMBERS) and not isinstance(gy, bool)):
        seed: Any = np.full(output.shape, 1 if gy is None else gy, output.dtype)
    else:
        seed = _emitted_seed(output, gy, name).data.raw()
    if loss_scale is None:
        return seed
    with x64_if(output.spec.needs_x64):
        return seed * held_scale(loss_scale, output.dtype)


@contained
def _emitted_seed(output: Variable, gy: Any, name: str) -> Variable:
    with emitting([], 1):
        return seed_of(output, gy, name)  # type: ignore[return-value]


def given_gradient(output: Variable, grad: Any) -> Any:
    """The gradient given to `Variable.backward`: None for ones, or a cell with the content of `.grad`."""
    if grad is None:
        if output.grad.is_zero:
            warn_user("backward: grad=None starts from this Variable's .grad, which is not set; set it first")
        return output.grad
    return None if grad.__class__ in (int, float) and grad == 1 else grad


def given_gradients(outputs: Any, grad_outputs: Any) -> tuple[list[Variable], list[Any]]:
    """The outputs that `nn.backward` differentiates, each with the gradient given or the content of its `.grad`."""
    listed = differentiable(outputs, "outputs")
    if grad_outputs is not None:
        return listed, one_each(listed, grad_outputs)
    for i, y in enumerate(listed):
        if y.grad.is_zero:
            warn_user(f"outputs[{i}] has no gradient in its .grad and counts as zero; set it, or give grad_outputs",
                      RuntimeWarning)
    nonzero = [y for y in listed if not y.grad.is_zero]
    return nonzero, [y.grad for y in nonzero]


# ---------------------------------------------------------------- tasks and derivations


def reached_from(outputs: Sequence[Variable], stop_ids: frozenset[int]) -> set[int]:
    """The ids of the Variables that gradients starting at `outputs` can reach."""

    def passes(y: Variable) -> bool:
        rule = None if y.parent is None else registry.find(y.parent.op)
        differentiable = rule is None or rule.kind != "non-differentiable"
        return y._need_grad is not False and id(y) not in stop_ids and y.spec.differentiable and differentiable

    inputs = [x for f in functions_of(outputs, through=passes) for x in f.inputs if x.spec.differentiable]
    return {id(x) for x in (*outputs, *inputs)}


class Task(NamedTuple):
    """A request as a graph: <seeds, outputs>, the inputs, and the functions between the two."""

    outputs: Sequence[Variable]
    inputs: Sequence[Variable]
    seeds: Seeds
    stop_gradients: Sequence[Variable]
    """Variables to treat as constants, besides those with `need_grad` set to False."""
    functions: list[Function]
    """All functions that the outputs depend on, by ascending rank."""
    path: list[Function]
    """The functions on some path from the inputs."""
    active: set[int]
    """The ids of the Variables on some path."""

    def about(self, outputs: Sequence[Variable]) -> Task:
        """The same task for other outputs."""
        inside = {*self.functions, None}
        known = functions_of(outputs, lambda x: x.parent in inside) if {y.parent for y in outputs} <= inside else None
        return task_of(outputs, self.inputs, self.seeds, self.stop_gradients, known)

    @property
    def stop_ids(self) -> frozenset[int]:
        """The ids of `stop_gradients`."""
        return frozenset([id(x) for x in self.stop_gradients])


def task_of(
    outputs: Sequence[Variable],
    inputs: Sequence[Variable],
    seeds: Seeds,
    stop_gradients: Sequence[Variable] = (),
    functions: list[Function] | None = None,
) -> Task:
    """Find what lies between outputs and inputs; `functions` are those above the outputs, if known."""
    functions = functions_of(outputs) if functions is None else functions
    path, active = among(functions, inputs, stop_ids=[id(x) for x in stop_gradients])
    if build_options().applying.body is not None:
        check_updates(path)
    return Task(outputs, inputs, seeds, stop_gradients, functions, path, active)


class Mode(NamedTuple):
    """The mode in which a gradient was built."""

    name: str
    """'reverse', 'forward' or 'symmetric'."""
    reason: str = ""
    """The first obstacle to a better mode."""


class Derivation:
    """A completed task: its results are the gradients of <seeds, outputs> with respect to each of `inputs`."""

    __slots__ = ("inputs", "outputs", "results", "seeds", "stop_gradients")

    def __init__(
        self,
        outputs: Sequence[Variable],
        inputs: Sequence[Variable],
        seeds: Seeds,
        stop_gradients: Sequence[Variable],
        results: Sequence[Variable],
    ) -> None:
        self.outputs, self.inputs, self.seeds, self.stop_gradients = outputs, inputs, seeds, stop_gradients
        self.results = [weakref.ref(gx) for gx in results]

    def remember(self, mode: Mode, order: int) -> None:
        """Record this derivation in its results."""
        for x, ref in zip(self.inputs, self.results, strict=True):
            gx = ref()
            if gx is not None:
                gx.derived_by = ResultDerivation(self, x, mode, order)

    def gradient(self, x: Variable) -> Variable | None:
        """The gradient with respect to `x`, while it lives."""
        for z, result in zip(self.inputs, self.results, strict=True):
            if z is x:
                return result()
        return None


class ResultDerivation(NamedTuple):
    """The record of a result of `grad`."""

    derivation: Derivation | None
    """The derivation that it belongs to, or None if it is not known to be a derivative."""
    input: Variable | None
    """The input that it is the gradient with respect to."""
    mode: Mode
    order: int
    """Order of differentiation."""
    unknown: str = ""
    """Why it is not known to be a derivative."""
    before: frozenset[tuple[int, Mode]] = frozenset()
    """Without a derivation: orders and modes of the gradients in the graph that was differentiated."""

    @property
    def history(self) -> frozenset[tuple[int, Mode]]:
        """The orders and modes of the result, and of all gradients that it is a gradient of."""
        return history([self])

    @property
    def outputs(self) -> Sequence[Variable]:
        """The outputs that were differentiated, as far as known."""
        return () if self.derivation is None else self.derivation.outputs


def remember(task: Task, mode: Mode, unknown: str, results: Sequence[Variable]) -> None:
    """Record what `results` are gradients of, or why that is `unknown`."""
    order = 1 + max([f.order for f in task.path or task.functions], default=0)
    if unknown:
        derived_by = ResultDerivation(None, None, mode, order, unknown, history(derivations_in(task.functions)))
        for gx in results:
            gx.derived_by = derived_by
    else:
        stop_gradients: list[Variable] = []
        if task.stop_gradients:  # those on no path change nothing
            _, active = among(task.functions, task.inputs)
            stop_gradients = [x for x in task.stop_gradients if x.parent is not None and id(x) in active]
        Derivation(task.outputs, task.inputs, task.seeds, stop_gradients, results).remember(mode, order)


def derivation_of(g: Variable) -> ResultDerivation | None:
    """The record of `g`; None if it is not a result of `grad`."""
    derived_by: ResultDerivation | None = g.derived_by
    return derived_by


def derived_in(functions: Sequence[Function]) -> list[Variable]:
    """The results of `grad` among the outputs of `functions`."""
    outputs = [ref() for f in functions if f.order for ref in f._outputs]
    return [y for y in outputs if y is not None and y.derived_by is not None]


def derivations_of(derived: Iterable[Variable]) -> dict[Derivation, int]:
    """The known derivations of results of `grad`, numbered."""
    derivations = dict.fromkeys([gx.derived_by.derivation for gx in derived])
    derivations.pop(None, None)
    return dict(zip(derivations, itertools.count(), strict=False))


def derivations_in(functions: Sequence[Function]) -> list[ResultDerivation]:
    """The distinct records of results of `grad` among the outputs of `functions`."""
    records: list[ResultDerivation] = [gx.derived_by for gx in derived_in(functions)]
    return list({(id(record.derivation), record.mode): record for record in records}.values())


def history(results: Iterable[ResultDerivation]) -> frozenset[tuple[int, Mode]]:
    """The orders and modes of results of `grad`, and of all gradients that they are gradients of."""
    records, seen = list(results), set()
    for record in records:  # which grows
        if record.derivation is not None and record.derivation not in seen:
            seen.add(record.derivation)
            records += derivations_in(functions_of(record.derivation.outputs))
    return frozenset().union(*[{(record.order, record.mode), *record.before} for record in records])


def check_updates(path: Sequence[Function]) -> None:
    """Raise an error if a derivative in a body passes a function there that updates a leaf: whether a step updates it
    would depend on which values the derivative happens to need.

    Args:
        path: The functions that the derivative passes.
    """
    body = build_options().applying.body
    for f in path:
        if f.effects and body is not None and f.serial > body:
            raise ValueError(
                f"{f.op.name} updates a Variable at each run of a body, so the body cannot differentiate it; use a "
                "function that updates nothing (batch_stat=False, or batch normalisation without running statistics)"
            )
