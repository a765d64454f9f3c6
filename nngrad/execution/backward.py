"""backward(): accumulate gradients in the leaves, computing forward and gradients in one executable; and the record of
the leaves that it has reached, with which solvers detect untrained ones."""

from __future__ import annotations

import functools
import operator
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import nngrad.functions as F
from backward_registry import registry

from ..autodiff.grad import grad
from ..autodiff.request import derivation_of, derived_in, given_gradient, given_gradients, reached_from, seed_array
from ..graph import Function, NdArray, Variable, build_options, engine, leaves_of
from ..graph.bounded_cache import BoundedCache
from ..graph.engine import Hook, provide
from ..graph.messages import warn_user
from ..graph.ndarray import NOT_KEPT
from ..graph.process import check_not_traced, interrupt_safe
from ..graph.spec import x64_if
from ..graph.thresholds import MOST_SUMS
from ..graph.value import Value
from ..graph.variable import grads_of
from .fused import Fused, FusedKey, Passed, at, fused_for, gradient_graph, passed
from .plans import RunPlan, Snapshot, numbers_of, plan_of, present
from .reading import keep_exchanged, run_one_by_one, take_snapshot


def backward(
    outputs: Variable | Iterable[Variable],
    grad_outputs: Any = None,
    *,
    enable_double_backprop: bool = False,
    retain_grad: bool = False,
    loss_scale: float | None = None,
    recompute: Any = None,
    communicator_callbacks: Any = None,
) -> None:
    """Add the gradient of the sum of `outputs` to `.grad` of the leaves with `need_grad`.

    Forward and gradients run as one executable, as in `Variable.backward`, for all outputs that were covered by the
    same `forward` (`nn.forward_all`), or by none.

    Args:
        outputs: Variable or Variables to differentiate; the same one twice counts twice.
        grad_outputs: Gradient at each output, in the forms that `nn.grad` takes; None in a list stands for
            ones. If it is None altogether, the gradient at each output is the content of its own `.grad`. An
            output whose `.grad` is empty is ignored, with a warning.
        enable_double_backprop: Also keep the gradients of leaves as Variables of a graph, in `.grad_var`.
        retain_grad: Also keep the gradients of intermediate Variables, in their `.grad`.
        loss_scale: A factor for the gradients at the outputs.
        recompute: Which forward values to recompute instead of keeping them, as in `nn.grad`.
        communicator_callbacks: One function or a list, called once the gradients are computed: the result of a
            communicator's `all_reduce_callback`, which sums them over processes.

    Raises:
        TypeError: Something is not a Variable, or an output is not of a floating dtype.
        ValueError: Lengths or shapes do not fit.
        MissingRule: An op on the path has no backward rule.

    Warns:
        UserWarning: `grad_outputs` is None and the `.grad` of an output is empty; or no leaf needs a gradient.
    """
    callbacks = () if communicator_callbacks is None else _callbacks(communicator_callbacks)
    listed, seeds = given_gradients(outputs, grad_outputs)
    options = CheckedBackward(enable_double_backprop, retain_grad, loss_scale, recompute=recompute)
    accumulate_gradients(listed, seeds, options, from_grad=grad_outputs is None)
    for callback in callbacks:
        callback()


def backward_from(
    output: Variable,
    grad: Any = 1,
    function_pre_hook: Hook = None,
    function_post_hook: Hook = None,
    retain_grad: bool = False,
    enable_double_backprop: bool = False,
    loss_scale: float | None = None,
    recompute: Any = None,
    communicator_callbacks: Any = None,
) -> None:
    """Add the gradient of `output` to `.grad` of the leaves with `need_grad`; see `Variable.backward`."""
    options = CheckedBackward(
        enable_double_backprop, retain_grad, loss_scale, function_pre_hook, function_post_hook, recompute
    )
    callbacks = () if communicator_callbacks is None else _callbacks(communicator_callbacks)
    accumulate_gradients([output], [given_gradient(output, grad)], options, from_grad=grad is None)
    for callback in callbacks:
        callback()


def _callbacks(callbacks: Any) -> list[Callable[[], None]]:
    """The functions to call after a backward, as a list."""
    listed = list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]
    if not all(map(callable, listed)):
        raise TypeError(f"communicator_callbacks: expected a result of comm.all_reduce_callback, or a list of them, "
                        f"got {callbacks!r}")
    return listed


class CheckedBackward(NamedTuple):
    """The options of a backward."""

    enable_double_backprop: bool = False
    retain_grad: bool = False
    loss_scale: float | None = None
    function_pre_hook: Hook = None
    function_post_hook: Hook = None
    recompute: Any = None


def accumulate_gradients(
    outputs: list[Variable], grads: list[Any], options: CheckedBackward, from_grad: bool
) -> None:
    """Add the gradients of `outputs` to the leaves, once for each forward that has covered some of the outputs.

    Args:
        outputs: The Variables to differentiate.
        grads: The gradient at each, None for ones.
        options: The options.
        from_grad: Whether `grads` come from the outputs' own `.grad`, so that leaves among them already have theirs.
    """
    check_not_traced("backward", "the results of nn.grad in nn.to_jax")
    if F.sink in [y.parent and y.parent.op for y in outputs]:
        outputs, grads = _without_sinks(outputs, grads)
    groups: dict[Snapshot | None, tuple[list[Variable], list[Any]]] = {}
    arrived: Gradients = []
    reaches = False
    for i, (y, gy) in enumerate(zip(outputs, grads, strict=True)):
        seed = seed_array(y, gy, options.loss_scale, "grad" if len(outputs) == 1 else f"grad_outputs[{i}]")
        if y.parent is not None:
            if y._need_grad is not False:
                of_snapshot, seeds = groups.setdefault(y.parent.snapshot, ([], []))
                of_snapshot.append(y)
                seeds.append(seed)
        elif y._need_grad and not from_grad:
            arrived.append((y.grad, np.ones(y.shape, y.dtype) if seed is None else seed))
    gradient_variables = _gradient_variables(outputs, grads, options) if options.enable_double_backprop else []
    retained: Gradients = []
    for snapshot, (ys, seeds) in groups.items():
        found = _gradients_from(ys, seeds, snapshot, options)
        if found is not None:
            reaches = True
            arrived += found[0]
            retained += found[1]
    if not (arrived or reaches) and outputs and not any([y.need_grad for y in outputs]):
        warn_user("backward: no leaf needs a gradient; make the leaves to differentiate by with need_grad=True")
    if arrived or retained:  # else they wait in their cells
        accumulate(arrived, retained)
    for x, gx in gradient_variables:
        x.grad.variable = gx


def _without_sinks(outputs: list[Variable], grads: list[Any]) -> tuple[list[Variable], list[Any]]:
    """The outputs and the gradient at each, with a sink that passes no gradient to its inputs replaced by these:
    gradients then start at the inputs, with the contents of their `.grad`. Leaves among them already have theirs."""
    pairs: list[tuple[Variable, Any]] = []
    waiting = [*zip(outputs, grads, strict=True)][::-1]
    while waiting:
        y, gy = waiting.pop()
        if y.parent is None or y.parent.op is not F.sink or y.parent.args["one_input_grad"]:
            pairs.append((y, gy))
        elif y._need_grad is not False:
            inputs = [x for x in y.parent.inputs if x.spec.differentiable]
            if all([x.grad.is_zero for x in inputs]):
                warn_user("backward: F.sink with one_input_grad=False starts from the .grad of its inputs, and none of "
                          "them is set; set them first")
            waiting += [(x, x.grad) for x in inputs if x.parent is not None]
    return [y for y, _ in pairs], [gy for _, gy in pairs]


Gradients = list[tuple[NdArray, Any]]
"""Arrays, each with the cell that it belongs to."""


def _gradients_from(
    outputs: list[Variable], seeds: list[Any], snapshot: Snapshot | None, options: CheckedBackward
) -> tuple[Gradients, Gradients] | None:
    """The gradients of outputs that share a snapshot: those of leaves, to be added to the cells' contents, and those of
    intermediate Variables, to replace them. Those that wait in their cells are not among them; None if there are none.
    """
    if snapshot is None or snapshot.implied:
        snapshot = _implied(outputs)
    plan = plan_of(outputs)
    wanted = tuple([i for i, x in plan.floating if x._need_grad])
    middle = _relevant_intermediates(plan, options.retain_grad)
    notable = middle and [(place, y) for place, y in middle if y._need_grad is not None or y._persistent]
    inside = tuple([place for place, y in notable if y._need_grad]) if notable else ()
    stops = tuple([place for place, y in notable if y._need_grad is False]) if notable else ()
    keeping = middle if options.retain_grad else notable
    retained = tuple([place for place, y in keeping if y._persistent or options.retain_grad]) if keeping else ()
    if not wanted and not inside:
        return None
    seeded, memory = tuple([seed is not None for seed in seeds]), engine.policy_key(options.recompute, plan.functions)
    key = FusedKey(wanted, inside, stops, seeded, registry.version, build_options().emitting.simplify, retained, memory)
    if reached_leaves.watching:
        reached_leaves.record(reached_leaves.of(outputs, [plan.leaves[i] for i in wanted], plan.functions))
    cells = grads_of(map(plan.leaves.__getitem__, wanted))
    if options.function_pre_hook is not None or options.function_post_hook is not None or build_options().watched:
        if plan.group is not None and snapshot.is_forward:
            snapshot.compute()  # reading the forward in one process must not wait for others
            keep_exchanged(outputs, plan, snapshot)
        met = passed(outputs, plan, key)
        gradients, others = _interpreted(outputs, plan, key, met, seeds, snapshot, options)
        _mark_not_kept(middle, met.difference(key.retained))
        return list(zip(cells, gradients, strict=True)), others
    return _compiled(outputs, plan, key, middle, seeds, snapshot, options, cells)


def _implied(outputs: list[Variable]) -> Snapshot:
    """The snapshot for a backward without a preceding `forward()`: a forward of its own, whatever was read. If all
    outputs were computed as they were made, under `nn.auto_forward()`, that was the forward."""
    if all([y.is_computed and y._at is None for y in outputs]):
        return present(outputs)
    snapshot = take_snapshot(outputs)
    snapshot.implied = True
    return snapshot


Middle = list[tuple[tuple[int, int], Variable]]


def _relevant_intermediates(plan: RunPlan, all_of_them: bool) -> Middle:
    """The intermediate Variables that matter to a backward, each with its place. Most do not: they have already given
    up their gradient in an earlier backward, and nothing else is known of them."""
    unsettled = [(i, f) for i, f in enumerate(plan.functions) if all_of_them or not f.settled]
    middle = [
        ((i, y.index), y)
        for i, f in unsettled
        for r in [f._output]
        for ref in (r if r.__class__ is tuple else (r,))
        for y in [ref()]
        if y is not None
        and (y._grad is not NOT_KEPT or y._need_grad is not None or y._persistent or all_of_them)
    ]
    for _, f in unsettled if len(middle) < len(unsettled) else ():
        f.settle()
    return middle


def _mark_not_kept(middle: Middle, places: Passed) -> None:
    """Mark intermediate Variables whose gradient was not kept."""
    for place, y in middle:
        if place in places:
            if y._grad is None:
                y._grad = NOT_KEPT
            elif y._grad is not NOT_KEPT:
                y._grad.give_up()


def _gradient_variables(
    outputs: list[Variable], grads: list[Any], options: CheckedBackward
) -> list[tuple[Variable, Variable]]:
    """The leaves, each with its gradient as a Variable, added to its `.grad_var`."""
    leaves = [x for x in leaves_of(outputs) if x._need_grad and x.spec.differentiable]
    # Values written to a cell afterwards belong to the next backward.
    grads = [NdArray.from_numpy_array(gy, gy.dtype) if isinstance(gy, NdArray) else gy for gy in grads]
    how = {"loss_scale": options.loss_scale, "recompute": options.recompute}
    gradients = grad(outputs, leaves, grads, **how)
    return [(x, gx if x.grad_var is None else x.grad_var + gx) for x, gx in zip(leaves, gradients, strict=True)]


def _arrays(plan: RunPlan, snapshot: Snapshot) -> tuple[Any, ...]:
    if snapshot.leaf_ids is plan.leaf_ids:
        return snapshot.arrays
    arrays = snapshot.by_leaf()
    return tuple([arrays[i] for i in plan.leaf_ids])


def _compiled(
    outputs: list[Variable],
    plan: RunPlan,
    key: FusedKey,
    middle: Middle,
    seeds: list[Any],
    snapshot: Snapshot,
    options: CheckedBackward,
    cells: list[NdArray],
) -> tuple[Gradients, Gradients]:
    """The gradients, and the retained ones, from one executable that computes the forward as well."""
    fused: Fused | None = plan.fused.get(key)
    if fused is None:
        plan.fused.clear()
        fused = fused_for(outputs, plan, key, options.recompute)
        if not fused.is_users:
            plan.fused[key] = fused
    if snapshot.leaf_ids is plan.leaf_ids and snapshot.is_forward and plan.group is None and fused.may_wait and not (
        snapshot.done or snapshot.has_gradients or True in key.seeded
    ):
        with _accumulating:
            if Value.all_zero(cells) and len({*cells}) == len(cells):
                snapshot.add_gradients(fused.executable, cells)
                if middle:
                    _mark_not_kept(middle, fused.passed)
                return [], []
    arrays = _arrays(plan, snapshot)
    if True in key.seeded or fused.others:
        arrays = (*arrays, *[seed for seed in seeds if seed is not None], *[x.cell.raw() for x in fused.others])
    count = len(outputs) + len(plan.kept) + len(plan.updated)
    retained = [y.grad for y in at(plan, fused.retained)] if fused.retained else []
    results = fused.executable(*arrays)
    if snapshot.is_forward and snapshot.leaf_ids is plan.leaf_ids:
        snapshot.replace(results[:count])
        if plan.group is not None:
            keep_exchanged(outputs, plan, snapshot)
    elif snapshot.is_forward and {*snapshot.outputs} == {*numbers_of(outputs)}:
        snapshot.replace_in([x.cell for x in (*outputs, *plan.kept, *plan.updated)], results[:count])
    if middle:
        _mark_not_kept(middle, fused.passed)
    end = count + len(cells)
    return list(zip(cells, results[count:end], strict=True)), list(zip(retained, results[end:], strict=True))


def _interpreted(
    outputs: list[Variable], plan: RunPlan, key: FusedKey, met: Passed, seeds: list[Any], snapshot: Snapshot,
    options: CheckedBackward,
) -> tuple[list[Any], Gradients]:
    """The gradients, and the retained ones, computed op by op, with hooks around every function of the gradient
    graph."""
    graph = gradient_graph(outputs, plan, key, met)
    leaves = snapshot.by_leaf()
    leaves.update(zip(map(id, graph.seeds), [seed for seed in seeds if seed is not None], strict=True))
    of_forward = {*plan.functions, *[y.parent for y in outputs]}
    before, after = options.function_pre_hook, options.function_post_hook
    gradients = [*graph.gradients, *graph.retained.values()]
    shown = outputs if build_options().watched else []  # the forward is part of what is watched
    values = run_one_by_one([*gradients, *shown], snapshot, leaves, before, after, hooked=lambda f: f not in of_forward)
    count = len(key.wanted)
    cells = [y.grad for y in at(plan, graph.retained)]
    return values[:count], list(zip(cells, values[count : len(gradients)], strict=True))

# ---------------------------------------------------------------- arrays that are added


Terms = tuple[tuple[Any, ...], ...]


def _sums(terms: Terms) -> tuple[Any, ...]:
    return tuple([functools.reduce(operator.add, xs) for xs in terms])


_executables = BoundedCache.about_structures(256)
_accumulating = threading.RLock()


def accumulate(arrived: Gradients, retained: Gradients) -> None:
    """Add arrays to the contents of cells, and replace those of others, all atomically."""
    with _accumulating:
        cells = [cell for cell, _ in arrived]
        are_empty = Value.all_zero(cells) or all([cell.is_empty for cell in cells])
        if are_empty and not retained and len({*cells}) == len(cells):
            Value.write(cells, [gx for _, gx in arrived])
            return
        parts = {cell: [gy] for cell, gy in retained}
        for cell, gx in arrived:
            if cell in parts:  # two leaves may share one
                parts[cell].append(gx)
            else:
                parts[cell] = [gx] if cell.is_empty else [cell.raw(), gx]
        added = {cell: tuple(terms) for cell, terms in parts.items() if len(terms) > 1}
        while added:
            cells = list(added)[:MOST_SUMS]
            terms = tuple([added.pop(cell) for cell in cells])
            key = tuple([(cell.spec, len(xs)) for cell, xs in zip(cells, terms, strict=True)])
            with x64_if(any([cell.spec.needs_x64 for cell in cells])):
                sums = interrupt_safe(_executables.get(key, lambda: jax.jit(functools.partial(_sums))))(terms)
            parts |= {cell: [total] for cell, total in zip(cells, sums, strict=True)}
        for cell in parts:
            cell.variable = None
        Value.write(list(parts), [total for (total,) in parts.values()])


# ---------------------------------------------------------------- leaves that nobody trains

class ReachedLeaves:
    """Which leaves the gradients of backwards reach, recorded while something watches: `reached_leaves`."""

    def __init__(self) -> None:
        self.watching: set[weakref.ref[Any]] = set()
        """What watches."""
        self._reached: deque[list[tuple[weakref.ref[Variable], weakref.ref[Value]]]] = deque(maxlen=64)

    def watch(self, by: Any) -> None:
        """Record the leaves that backwards reach, until `unwatch(by)`, or until `by` is gone."""
        self.watching.add(weakref.ref(by, self.watching.discard))

    def unwatch(self, by: Any) -> bool:
        """End the recording for `by`; returns whether there was one."""
        if not self.watching:
            return False
        was_watching = weakref.ref(by) in self.watching
        self.watching.discard(weakref.ref(by))
        return was_watching

    def record(self, leaves: Iterable[Variable]) -> None:
        """Record which leaves the gradients of one backward reach, with their present Values."""
        self._reached.append([(weakref.ref(x), weakref.ref(x.cell.held)) for x in leaves])

    def of(self, outputs: list[Variable], leaves: Iterable[Variable], functions: Sequence[Function]) -> list[Variable]:
        """The leaves that gradients of the outputs reach, except inputs of a `grad` whose result is among the
        functions: such a gradient is what the program computes."""
        reached = reached_from(outputs, frozenset())
        differentiated = {id(known.input) for y in derived_in(functions) if (known := derivation_of(y)) is not None}
        return [x for x in leaves if id(x) in reached and id(x) not in differentiated]

    def along_with(self, parameters: Iterable[Variable]) -> list[Variable]:
        """The leaves reached together with some of `parameters`, each reported only once.

        Leaves written to since then are data, and gradients that were read or are gone have already been used.
        """
        cells = {id(p.cell) for p in parameters}
        noted = [
            (group, [(x, value()) for ref, value in group if (x := ref()) is not None]) for group in self._reached
        ]
        written = {id(x) for _, group in noted for x, value in group if x.cell.held is not value}
        with_own = [any([id(x.cell) in cells for x, _ in group]) for _, group in noted]
        self._reached.clear()
        if self.watching:
            self._reached.extend([group for (group, _), is_own in zip(noted, with_own, strict=True) if not is_own])
        return [
            x
            for (_, group), is_own in zip(noted, with_own, strict=True)
            if is_own
            for x, _ in group
            if id(x) not in written and not (x.grad.is_empty or x.grad.held.has_view)
        ]


reached_leaves = ReachedLeaves()

provide(engine, {"backward": backward_from})
