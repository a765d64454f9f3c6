"""backward(): gradients added to the leaves; forward and gradients as one executable."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from backward_registry import registry

from ..execution.compiled import BoundedCache, executable_of
from ..execution.forward import RunPlan, Snapshot, is_watched, plan_of, present, run_one_by_one, take_snapshot
from ..execution.interpret import Hook
from ..execution.lower import linearize
from ..execution.program import Program
from ..graph import NdArray, Variable, build_options, contained, leaves_of, switch
from ..graph.place import warn_user
from ..graph.variable import leaf_of
from ..remat import policy_key
from .accumulation import accumulate
from .grad import emitted, grad
from .request import Request, given_gradient, given_gradients
from .seeds import seed_array

Wanted = tuple[int, ...]


class Fused(NamedTuple):
    """Forward and gradient of a structure as one executable.

    Its arguments are the arrays of the forward graph's leaves, of the seeds that are given, and of `others`; its
    results the outputs, the persistent Variables, the leaves that the forward updates, the gradients, and those
    that are retained.
    """

    executable: Callable[..., tuple[Any, ...]]
    others: list[Variable]
    """Leaves that backward rules brought in. They belong to one graph, so such a structure is not shared."""
    retained: list[int]
    """Which of the Variables in the middle have a gradient among the results, by their number."""


class _Shared:
    """What graphs of one structure share: a Fused, as long as its executable is kept."""

    __slots__ = ("executable", "retained")

    def __init__(self, fused: Fused) -> None:
        self.executable = weakref.ref(fused.executable)
        self.retained = fused.retained

    def fused(self) -> Fused | None:
        """The Fused, or None where the executable is gone."""
        executable = self.executable()
        return None if executable is None else Fused(executable, [], self.retained)


_fused = BoundedCache(512)
"""What is known of the executables of structures; those themselves are in `executables`, and may be gone from there."""


def backward(
    outputs: Variable | Iterable[Variable],
    grad_outputs: Any = None,
    *,
    enable_double_backprop: bool = False,
    retain_grad: bool = False,
    loss_scale: float | None = None,
    recompute: Any = None,
) -> None:
    """Add the gradient of the sum of `outputs` to `.grad` of the leaves with `need_grad`.

    Forward and gradients run as one executable, as in `Variable.backward`, for all outputs that one `forward` has
    covered (`nn.forward_all`), or none.

    Args:
        outputs: Variable or Variables to differentiate; the same one twice counts twice.
        grad_outputs: Gradient at each output, in the forms that `nn.grad` takes; None among them stands for
            ones. Where there are none at all, the gradient at each output is what its own `.grad` holds. An
            output whose `.grad` holds nothing counts for nothing, and a warning says so.
        enable_double_backprop: Keep the gradients of leaves as Variables of a graph too, in `.grad_var`.
        retain_grad: Keep the gradients of the Variables in the middle, in their `.grad`.
        loss_scale: What the gradients at the outputs are multiplied by.
        recompute: Which forward values are computed again, so that they need not be kept, as in `nn.grad`.

    Raises:
        TypeError: Something is not a Variable, or an output is not of a floating dtype.
        ValueError: Lengths or shapes do not fit.
        MissingRule: An op on the way has no backward rule.

    Warns:
        UserWarning: No `grad_outputs` are given, and the `.grad` of an output holds nothing; or no leaf needs a
            gradient.
    """
    listed, given = given_gradients(outputs, grad_outputs)
    options = Options(enable_double_backprop, retain_grad, loss_scale, recompute=recompute)
    accumulate_gradients(listed, given, options, own=grad_outputs is None)


def backward_from(
    output: Variable,
    grad: Any = 1,
    function_pre_hook: Hook = None,
    function_post_hook: Hook = None,
    retain_grad: bool = False,
    enable_double_backprop: bool = False,
    loss_scale: float | None = None,
    recompute: Any = None,
) -> None:
    """Add the gradient of `output` to `.grad` of the leaves with `need_grad`; see `Variable.backward`."""
    options = Options(enable_double_backprop, retain_grad, loss_scale, function_pre_hook, function_post_hook, recompute)
    accumulate_gradients([output], [given_gradient(output, grad)], options, own=grad is None)


class Options(NamedTuple):
    """How a backward runs."""

    enable_double_backprop: bool = False
    retain_grad: bool = False
    loss_scale: float | None = None
    function_pre_hook: Hook = None
    function_post_hook: Hook = None
    recompute: Any = None

    @property
    def op_by_op(self) -> bool:
        """Whether somebody wants to see the functions run."""
        return self.function_pre_hook is not None or self.function_post_hook is not None


PLAIN = Options()


def accumulate_gradients(
    outputs: list[Variable], grads: list[Any], options: Options = PLAIN, own: bool = False
) -> None:
    """Add the gradients of `outputs` to the leaves: once for each forward that has covered some of them.

    Args:
        outputs: What is differentiated.
        grads: The gradient at each, None for ones.
        options: How.
        own: Whether `grads` are the outputs' own, which leaves among them have already.
    """
    groups: dict[Snapshot | None, list[tuple[Variable, Any]]] = {}
    arrived: list[tuple[NdArray, Any]] = []
    for i, (y, gy) in enumerate(zip(outputs, grads, strict=True)):
        seed = seed_array(y, gy, options.loss_scale, "grad" if len(outputs) == 1 else f"grad_outputs[{i}]")
        if y.parent is not None:
            if y._need_grad is not False:
                groups.setdefault(y.parent.snapshot, []).append((y, seed))
        elif y._need_grad and not own:
            arrived.append((y.grad, np.ones(y.shape, y.dtype) if seed is None else seed))
    kept = _gradient_variables(outputs, grads, options) if options.enable_double_backprop else []
    retained: list[tuple[NdArray, Any]] = []
    for snapshot, pairs in groups.items():
        found = _gradients_from([y for y, _ in pairs], [seed for _, seed in pairs], snapshot, options)
        arrived += found.arrived
        retained += found.retained
    if not arrived and not retained and outputs and not any([y.need_grad for y in outputs]):
        warn_user("backward: nothing needs a gradient; make the leaves that do with need_grad=True")
    accumulate(arrived, retained)
    for x, gx in kept:
        x.grad_var = gx


class Found(NamedTuple):
    """Gradients as arrays, with the cells that they belong to."""

    arrived: list[tuple[NdArray, Any]]
    """Those of leaves, which are added to what is there."""
    retained: list[tuple[NdArray, Any]]
    """Those of Variables in the middle, which take the place of what is there."""


def _gradients_from(
    outputs: list[Variable], seeds: list[Any], snapshot: Snapshot | None, options: Options
) -> Found:
    if snapshot is None:
        snapshot = present(outputs) if all([y.is_computed for y in outputs]) else take_snapshot(outputs)
    plan = plan_of(outputs)
    wanted = tuple([i for i, x in enumerate(plan.leaves) if x._need_grad and x.spec.differentiable])
    if not wanted:
        return Found([], [])
    run = _interpreted if options.op_by_op or is_watched(outputs) else _compiled
    gradients, retained = run(outputs, plan, wanted, seeds, snapshot, options)
    return Found([(plan.leaves[i].grad, gx) for i, gx in zip(wanted, gradients, strict=True)], retained)


def _gradient_variables(
    outputs: list[Variable], grads: list[Any], options: Options
) -> list[tuple[Variable, Variable]]:
    """The leaves, each with its gradient as a Variable, added to what `.grad_var` is."""
    leaves = [x for x in leaves_of(outputs) if x._need_grad and x.spec.differentiable]
    before = [x.grad_var for x in leaves]
    # What is written to a cell afterwards belongs to the next backward.
    grads = [NdArray.from_numpy_array(gy, gy.dtype) if isinstance(gy, NdArray) else gy for gy in grads]
    how = {"loss_scale": options.loss_scale, "recompute": options.recompute}
    return list(zip(leaves, grad(outputs, leaves, grads, grad_inputs=before, **how), strict=True))


def _arrays(plan: RunPlan, snapshot: Snapshot) -> tuple[Any, ...]:
    if snapshot.leaf_ids is plan.leaf_ids:
        return snapshot.arrays
    arrays = snapshot.by_leaf()
    return tuple([arrays[i] for i in plan.leaf_ids])


def _compiled(
    outputs: list[Variable], plan: RunPlan, wanted: Wanted, seeds: list[Any], snapshot: Snapshot, options: Options
) -> tuple[list[Any], list[tuple[NdArray, Any]]]:
    """The gradients, and those that are retained, from one executable that computes the forward as well."""
    seeded = tuple([seed is not None for seed in seeds])
    retained = options.retain_grad and _alive(plan)
    memory = policy_key(options.recompute, plan.functions)
    key = (wanted, _stops(plan), seeded, registry.version, build_options().simplify, retained, memory)
    fused: Fused | None = plan.fused.get(key)
    if fused is None:
        plan.fused.clear()
        table = _fused.part([op for op, _, _ in plan.program.steps])
        shared: _Shared | None = table.find((plan.program, key))
        fused = None if shared is None else shared.fused()
        if fused is None:
            fused = _fuse(outputs, plan, wanted, seeded, options)
            if shared is not None:
                shared.executable = weakref.ref(fused.executable)
            elif not fused.others:
                table.keep((plan.program, key), _Shared(fused))
        plan.fused[key] = fused
    given = [seed for seed in seeds if seed is not None]
    results = fused.executable(*_arrays(plan, snapshot), *given, *[x.cell.raw() for x in fused.others])
    count = len(outputs) + len(plan.kept) + len(plan.updated)
    run = snapshot.run
    if run is not None and not run.done:
        if snapshot.leaf_ids is plan.leaf_ids:
            run.keep(results[:count])
        elif len(outputs) > 1:
            run.keep_if_complete([x.cell for x in (*outputs, *plan.kept, *plan.updated)], results[:count])
    end = count + len(wanted)
    return list(results[count:end]), _cells_of(plan, fused.retained, results[end:])


def _cells_of(plan: RunPlan, numbers: Iterable[int], gradients: Sequence[Any]) -> list[tuple[NdArray, Any]]:
    """The gradients of Variables in the middle, by their numbers, each with its cell."""
    middle = list(_middle(plan).values()) if gradients else []
    return [(middle[i].grad, gy) for i, gy in zip(numbers, gradients, strict=True)]


def _middle(plan: RunPlan) -> dict[tuple[int, int], Variable]:
    """The Variables in the middle of the graph, by function and output."""
    found = {(i, k): ref() for i, f in enumerate(plan.functions) for k, ref in enumerate(f._outputs)}
    return {place: y for place, y in found.items() if y is not None}


def _alive(plan: RunPlan) -> tuple[tuple[int, int], ...]:
    return tuple(_middle(plan))


def _stops(plan: RunPlan) -> tuple[tuple[int, int], ...]:
    """Which outputs of functions gradients stop at, by place in the graph."""
    return tuple([
        (i, k)
        for i, f in enumerate(plan.functions)
        for k, ref in enumerate(f._outputs)
        for y in [ref()]
        if y is not None and y._need_grad is False
    ])


class GradientGraph(NamedTuple):
    """What a backward computes."""

    gradients: list[Variable]
    """Of the leaves."""
    seeds: list[Variable]
    """The leaves that stand for the seeds that are given."""
    retained: dict[int, Variable]
    """The gradients of Variables in the middle, by their number."""


@contained
def _gradient_graph(
    outputs: list[Variable], plan: RunPlan, wanted: Wanted, seeded: Sequence[bool], retain: bool, recompute: Any = False
) -> GradientGraph:
    seeds = [leaf_of(NdArray.of_spec(y.spec)) if given else None for y, given in zip(outputs, seeded, strict=True)]
    switch(auto_forward=False, no_grad=False)
    leaves = [plan.leaves[i] for i in wanted]
    given = [seed for seed in seeds if seed is not None]

    def program_of(gradients: list[Variable]) -> Program:
        return _program(outputs, plan, gradients, given)[0]

    numbers = {id(y): i for i, y in enumerate(_middle(plan).values())} if retain else {}
    found = emitted(Request(
        outputs, leaves, seeds, retain=retain, retained_at=frozenset(numbers), recompute=recompute, final=True,
        program_of=program_of,
    ))
    retained = {numbers[id(y)]: gy for y, gy in found.retained}
    return GradientGraph(found.gradients, given, retained)


def _fuse(outputs: list[Variable], plan: RunPlan, wanted: Wanted, seeded: Sequence[bool], options: Options) -> Fused:
    graph = _gradient_graph(outputs, plan, wanted, seeded, options.retain_grad, options.recompute)
    program, others = _program(outputs, plan, [*graph.gradients, *graph.retained.values()], graph.seeds)
    return Fused(executable_of(program), others, list(graph.retained))


def _program(
    outputs: list[Variable], plan: RunPlan, gradients: Sequence[Variable], seeds: Sequence[Variable]
) -> tuple[Program, list[Variable]]:
    """The program of a forward and its gradients, and its leaves besides those of the plan and the seeds."""
    first = [*plan.leaves, *seeds]
    linear = linearize([*outputs, *plan.kept, *gradients], first=first, device=plan.program.device)
    results = linear.program.outputs
    end = len(outputs) + len(plan.kept)
    values, rest = results[:end], results[end:]
    updates = {id(x): number for x, number in zip(linear.updated, rest[len(gradients) :], strict=True)}
    program = linear.program._replace(
        outputs=(*values, *[updates[id(x)] for x in plan.updated], *rest[: len(gradients)])
    )
    return program, linear.leaves[len(first) :]


def _interpreted(
    outputs: list[Variable], plan: RunPlan, wanted: Wanted, seeds: list[Any], snapshot: Snapshot, options: Options
) -> tuple[list[Any], list[tuple[NdArray, Any]]]:
    """The same, op by op, with the hooks around every function of the gradient graph."""
    graph = _gradient_graph(outputs, plan, wanted, [seed is not None for seed in seeds], options.retain_grad)
    leaves = snapshot.by_leaf()
    leaves.update(zip(map(id, graph.seeds), [seed for seed in seeds if seed is not None], strict=True))
    own = {*plan.functions, *[y.parent for y in outputs]}
    before, after = options.function_pre_hook, options.function_post_hook
    gradients = [*graph.gradients, *graph.retained.values()]
    shown = outputs if is_watched([*outputs, *gradients]) else []  # the forward is part of what is watched
    values = run_one_by_one([*gradients, *shown], snapshot, leaves, before, after, hooked=lambda f: f not in own)
    return values[: len(wanted)], _cells_of(plan, graph.retained, values[len(wanted) : len(gradients)])
