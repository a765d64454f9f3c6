"""Grad: the walk that turns a forward graph into the graph of its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import nngrad.functions as F
from backward_registry import Registry, missing, registry

from ..functions.array import zeros_like
from ..graph import (
    Function,
    RuleCall,
    Variable,
    building,
    create,
    functions_of,
    leaves_of,
    path_between,
    rooms,
)
from ..graph.building import Emission
from .intern import emitting
from .numbers import grad_end as GradEndFunction
from .numbers import is_zero
from .seeds import initial_gradients, scaled_seeds, seeds_of
from .steering import UNREACHABLE, Aggregate, check_choice, checked_aggregate, keep_gradient, unreachable_inputs

Gradients = dict[int, list[Variable]]
"""The gradients that have arrived at a Variable, by its id."""


class Grad:
    """Walks a graph from its outputs back to its inputs and emits the graph of the gradients.

    Functions are visited from the highest rank down, so that a function's turn comes when all that
    use its outputs have had theirs. Its rule is looked up and called on the sums of what arrived;
    what the rule returns arrives at the inputs. All that is not calculus is done here and in no rule:
    sums over fan-out and over broadcast axes, casts, zeros, and stopping where no gradient is wanted.

    Args:
        rules: Where backward rules are looked up.
        aggregate: Sums a list of two or more gradients that have arrived at one Variable.
        ends: Ids of Variables that no gradient passes, besides those with `need_grad` set to False.
        retained: A list that takes every Variable on the way together with its gradient.
    """

    def __init__(
        self,
        rules: Registry = registry,
        aggregate: Aggregate | None = None,
        ends: frozenset[int] = frozenset(),
        retained: list[tuple[Variable, Variable]] | None = None,
    ) -> None:
        self.rules = rules
        self.aggregate = aggregate or sum_of
        self.ends = ends
        self.retained = retained

    def __call__(
        self, outputs: Sequence[Variable], inputs: Sequence[Variable], seeds: Sequence[Variable | None]
    ) -> list[Variable]:
        """The sum over `outputs` of their gradients with respect to each of `inputs`.

        Args:
            outputs: What is differentiated.
            inputs: With respect to what.
            seeds: Gradient at each output; None for ones.
        """
        path, active, known = path_between(outputs, inputs, ends=self.ends)
        with emitting(known, order_of(path)) as emission:
            return self.walk(emission, path, active, outputs, inputs, seeds)

    def walk(
        self,
        emission: Emission,
        path: list[Function],
        active: set[int],
        outputs: Sequence[Variable],
        inputs: Sequence[Variable],
        seeds: Sequence[Variable | None],
    ) -> list[Variable]:
        """The gradients, from the functions on some way, lowest rank first, and the ids of the Variables there."""
        total, ends, kept = self.total, self.ends, building.watched
        arrived: Gradients = {}
        for y, seed in zip(outputs, seeds, strict=True):
            if id(y) in active:
                end = GradEndFunction(shape=y.shape, dtype=y.dtype) if seed is None else seed
                arrived.setdefault(id(y), []).append(end)
        for f in reversed(path):
            outs = f.outputs
            gys = [None if y._need_grad is False or id(y) in ends else total(arrived, y) for y in outs]
            if any([gy is not None for gy in gys]):
                emission.call = RuleCall(f, gys, kept)
                for x, gx in zip(f.inputs, self.pulled(f, outs, gys, outputs, active, arrived), strict=True):
                    if gx is not None and id(x) in active and x.spec.differentiable and not is_zero(gx):
                        arrived.setdefault(id(x), []).append(gx if gx.spec is x.spec else fitted(f, x, gx))
        emission.call = None
        if self.retained is not None:
            on_the_way = {id(y): y for f in path for y in f.outputs} | {id(x): x for x in (*outputs, *inputs)}
            self.retained += [(x, gx) for x in on_the_way.values() for gx in [total(arrived, x)] if gx is not None]
        return [zeros_like(x) if gx is None else gx for x in inputs for gx in [total(arrived, x)]]

    def total(self, arrived: Gradients, x: Variable) -> Variable | None:
        """The sum of the gradients that have arrived at `x`: one function, however many they are."""
        gxs = arrived.get(id(x))
        if gxs is None:
            return None
        if len(gxs) > 1:
            # In the order in which they can be had, so that nothing waits for the last one but the last addition:
            # two cores then finish a step with several branches a tenth sooner.
            gxs = sorted(gxs, key=_by_rank)
            arrived[id(x)] = gxs = [self.aggregate(gxs)]
        return gxs[0]

    def pulled(
        self,
        f: Function,
        outs: Sequence[Variable],
        gys: list[Variable | None],
        outputs: Sequence[Variable],
        active: set[int],
        arrived: Gradients,
    ) -> Sequence[Any]:
        """One gradient per input of `f`, from its rule; an output that nothing arrived at counts as zero."""
        rule = self.rules.find(f.op)
        if rule is None:
            raise missing(f.op, way(outputs, f))
        filled = [zeros_like(y) if gy is None else gy for y, gy in zip(outs, gys, strict=True)]
        try:
            if rule.accumulate is None:
                gxs = rule.function(f, *filled)
            else:
                gxs = self.accumulated(rule.accumulate, f, filled, active, arrived)
        except Exception as error:
            error.add_note(f"in the backward rule of {f.op.name} ({rule.module}), for {f!r}")
            raise
        gxs = gxs if isinstance(gxs, tuple | list) else (gxs,)
        if len(gxs) != len(f.inputs):
            raise ValueError(f"{f.op.name}: its rule gave {len(gxs)} gradients for {len(f.inputs)} inputs")
        for gx in gxs:
            if gx is not None and gx.__class__ is not Variable:
                raise TypeError(f"{f.op.name}: its rule must return Variables or None, got {type(gx).__name__}; use F")
        return gxs

    def accumulated(
        self, accumulate: Callable[..., Any], f: Function, gys: list[Variable], active: set[int], arrived: Gradients
    ) -> Any:
        """The gradients from a rule that is told which are wanted, and may add to what has arrived."""

        def take(i: int) -> Variable | None:
            gx = self.total(arrived, f.inputs[i])
            arrived.pop(id(f.inputs[i]), None)
            return gx

        indexes = tuple([i for i, x in enumerate(f.inputs) if id(x) in active and x.spec.differentiable])
        return accumulate(f, gys, indexes, take)


def order_of(path: Iterable[Function]) -> int:
    """The order of differentiation of what a walk along `path` emits."""
    return 1 + max([f.order for f in path], default=0)


_by_rank = attrgetter("rank")


def sum_of(gradients: list[Variable]) -> Variable:
    """The sum of gradients of one Variable."""
    y: Variable = F.add2(*gradients) if len(gradients) == 2 else F.add_n(*gradients)
    return y


def fitted(f: Function, x: Variable, gx: Variable) -> Variable:
    """`gx` in the shape and dtype of `x`: a broadcasting op's gradient is summed over the axes it repeated."""
    if gx.shape != x.shape:
        if not f.op.broadcasts or gx.shape != f.specs[0].shape:
            raise ValueError(f"{f.op.name}: its rule gave shape {gx.shape} for an input of shape {x.shape}")
        gx = F.sum_to(gx, shape=x.shape)
    return gx if gx.dtype == x.dtype else F.cast(gx, dtype=x.dtype)


def way(outputs: Sequence[Variable], target: Function) -> str:
    """The types of function between `outputs` and `target`, for messages."""
    below: dict[Function, Function | None] = {y.parent: None for y in outputs if y.parent is not None}
    stack = list(below)
    while stack and target not in below:
        f = stack.pop()
        for x in f.inputs:
            if x.parent is not None and x.parent not in below:
                below[x.parent] = f
                stack.append(x.parent)
    names, step = [], below.get(target)
    while step is not None:
        names.append(step.op.type_name)
        step = below[step]
    shown = names if len(names) <= 8 else [*names[:4], "...", *names[-4:]]
    return " <- ".join(["output", *reversed(shown), target.op.type_name])


def grad(
    outputs: Variable | Iterable[Variable],
    inputs: Variable | Iterable[Variable],
    grad_outputs: Any = None,
    persistent_outputs: Sequence[bool] = (),
    bind_grad_output: bool = False,
    *,
    grad_inputs: Any = None,
    set_grad: bool = False,
    retain_grad: bool = False,
    loss_scale: float | Variable | None = None,
    enable_double_backprop: bool = True,
    unreachable: str = "zero",
    aggregate: Aggregate | None = None,
    stop_gradients: Variable | Iterable[Variable] = (),
) -> list[Variable]:
    """The gradient of the sum of `outputs` with respect to each of `inputs`, as a graph.

    What comes back are Variables of a graph made of ordinary functions: compute them with `forward()`
    or by reading `.d`, use them in a loss, or differentiate them again.

    Args:
        outputs: Variable or Variables to differentiate; the same one twice counts twice.
        inputs: Variables with respect to which: leaves, or Variables in the middle of the graph. A
            parameter that is not in the graph itself stands for the leaves that share its data.
        grad_outputs: Gradient at each output: None (ones), a number (for all outputs, or one each in
            a list), an array, an NdArray or a Variable of the output's shape. Gradients flow into a
            Variable.
        persistent_outputs: Sets `.persistent` of each output. Values of outputs can be read after a
            forward in any case.
        bind_grad_output: Let the gradients' data be the `.grad` of the inputs.
        grad_inputs: Gradient that is there already at each input, None for nothing: what `grad_outputs`
            takes, of the input's shape. What is computed is added to it. From an input in the middle of
            the graph it flows on to the inputs above.
        set_grad: Keep each gradient at its input: `x.grad_var` is the Variable, and `x.g` its value,
            computed when it is read. This keeps the gradient's graph alive until `x.cleargrad()`.
        retain_grad: Keep the gradient of every Variable on the way in that manner, those of outputs and inputs
            included; `set_grad` is ignored then.
        loss_scale: A number, or a floating Variable of shape (), that the gradients at the outputs are
            multiplied by, the default ones and those given; the results are multiplied by it, then.
        enable_double_backprop: False emits the same functions, but no gradient passes what is returned: for
            a further `grad` it is a constant.
        unreachable: What an input gets that no gradient can reach: 'zero' zeros, 'none' None in place of a
            Variable, 'raise' a ValueError that gives its position.
        aggregate: Sums the gradients that arrive at one Variable, a list of two or more Variables, into one
            Variable of their shape and dtype; by default `F.add_n` does, all at once.
        stop_gradients: Variables that count as constants: gradients may end at them (as inputs), but do not
            pass them. What is asked for is then a partial derivative.

    Returns:
        One Variable per input, of its shape and dtype; zeros, connected to nothing, where no way
        leads from it to an output.

    Raises:
        TypeError: Something is not a Variable, or an output is not of a floating dtype.
        ValueError: Lengths or shapes do not fit; an input is out of reach, where that is to raise.
        MissingRule: An op on the way has no backward rule.
    """
    outputs, inputs = variables(outputs, "outputs"), variables(inputs, "inputs")
    for i, y in enumerate(outputs):
        if not y.spec.differentiable:
            raise TypeError(f"outputs[{i}] is {y.dtype.name}; only floating dtypes can be differentiated")
    check_choice(unreachable, "unreachable", UNREACHABLE)
    seeds = scaled_seeds(outputs, seeds_of(outputs, grad_outputs), loss_scale)
    initial = initial_gradients(inputs, grad_inputs)
    ends = frozenset([id(x) for x in variables(stop_gradients, "stop_gradients")])
    persistent_outputs = list(persistent_outputs)
    if persistent_outputs and len(persistent_outputs) != len(outputs):
        raise ValueError(
            f"persistent_outputs: {len(persistent_outputs)} given for {len(outputs)} outputs; give one each or none"
        )
    for y, persistent in zip(outputs, persistent_outputs, strict=False):
        y.persistent = bool(persistent)

    owners = own_leaves(outputs, inputs)
    lost = [] if unreachable == "zero" else unreachable_inputs(outputs, owners, initial, ends)
    if lost and unreachable == "raise":
        raise ValueError(f"inputs{lost}: no gradient of the outputs can reach them")
    # A gradient that is there already is one that starts at its input.
    starts = [*outputs, *[own[0] for own, gx in zip(owners, initial, strict=True) if gx is not None]]
    seeds += [gx for gx in initial if gx is not None]
    retained: list[tuple[Variable, Variable]] = []
    steered = retain_grad or aggregate is not None or bool(ends) or building.watched
    walk = Grad()
    if steered:
        total = None if aggregate is None else checked_aggregate(aggregate)
        walk = Grad(aggregate=total, ends=ends, retained=retained if retain_grad else None)
    with building.having("auto_forward", False):
        gradients = bound_gradients(starts, owners, seeds, walk)
        gradients = distinct(gradients, [*outputs, *inputs], bind_grad_output)
        kept = dict(zip(inputs, gradients, strict=True)) if set_grad or retain_grad else {}
        if retained:
            own = distinct([gx for _, gx in retained], [*outputs, *inputs, *gradients], False)
            kept = dict(zip([x for x, _ in retained], own, strict=True)) | kept
    if bind_grad_output:
        for x, gx in zip(inputs, gradients, strict=True):
            gx.data = x.grad
    if not enable_double_backprop:
        for gx in (*gradients, *kept.values()):
            gx.need_grad = False
    for x, gx in kept.items():
        keep_gradient(x, gx)
    if building.auto_forward:
        # Only now is it known which of the emitted functions are of use.
        for f in functions_of([*gradients, *kept.values()]):
            if not all([y.is_computed for y in f.outputs]):
                rooms.engine.run_function(f)
    for i in lost:
        gradients[i] = None  # type: ignore[call-overload]
    return gradients


def variables(given: Any, name: str) -> list[Variable]:
    """`given` as a list of Variables."""
    listed = [given] if isinstance(given, Variable) else given
    try:
        listed = list(listed)
    except TypeError:
        raise TypeError(f"{name}: expected a Variable or a list of them, got {type(given).__name__}") from None
    for i, x in enumerate(listed):
        if not isinstance(x, Variable):
            raise TypeError(f"{name}[{i}]: expected a Variable, got {type(x).__name__}")
    return listed


def own_leaves(outputs: list[Variable], inputs: list[Variable]) -> list[list[Variable]]:
    """What each input stands for: itself, or where it is a leaf that is not in the graph, all of the graph's own
    that share its data."""
    loose = [x for x in inputs if x.parent is None]
    leaves = leaves_of(outputs) if loose else []
    present = {id(x) for x in leaves}
    if all(id(x) in present for x in loose):
        return [[x] for x in inputs]
    by_cell: dict[int, list[Variable]] = {}
    for x in leaves:
        if x._data is not None:
            by_cell.setdefault(id(x._data), []).append(x)
    return [[x] if x.parent is not None or id(x) in present else by_cell.get(id(x._data), [x]) for x in inputs]


def bound_gradients(
    outputs: list[Variable], owners: list[list[Variable]], seeds: list[Variable | None], walk: Grad
) -> list[Variable]:
    """The gradients: for each list in `owners` their sum over what is in it."""
    gxs = walk(outputs, [x for own in owners for x in own], seeds)
    if len(gxs) == len(owners):
        return gxs
    rest = iter(gxs)
    parts = [[next(rest) for _ in own] for own in owners]
    return [gs[0] if len(gs) == 1 else F.add_n(*gs) for gs in parts]


def distinct(gradients: list[Variable], others: list[Variable], always: bool) -> list[Variable]:
    """`gradients` as Variables of their own: none is one of `others`, a leaf, or there twice."""
    taken = {id(x) for x in others}
    results = []
    for gx in gradients:
        if always or id(gx) in taken or gx.parent is None or gx.parent.order == 0:
            gx = create(F.identity, (gx,), (), order=max(1, 0 if gx.parent is None else gx.parent.order))
        taken.add(id(gx))
        results.append(gx)
    return results


