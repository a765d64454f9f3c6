"""grad(): gradients of Variables as Variables, in one of three modes:

    reverse      the reverse pass from the outputs (walk.py); always applicable
    forward      a tangent along the existing graph, if each element depends on one of the input's (symmetry.py)
    symmetric    a tangent along an existing gradient, if second derivatives commute (symmetry.py)

With the last two, each order adds only as much as the one before, so they are preferred where they apply.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import nngrad.functions as F

from ..graph import (
    Function,
    Switched,
    Variable,
    build_options,
    contained,
    create,
    engine,
    functions_of,
    leaves_of,
    path_between,
)
from ..graph.capture import stands_for
from ..graph.event import AROUND
from ..graph.function import next_serial
from ..graph.options import pause_collector, watching_for_users_code
from ..graph.thresholds import FEWEST_ASKED
from ..graph.value import together
from ..rewrite.builder import emitting, new_builder
from .known_gradients import (
    GradientResults,
    known_answer,
    question_of,
    remember_answer,
    was_asked_before,
)
from .request import (
    Mode,
    Request,
    Task,
    checked_persistent,
    derived_in,
    reached_from,
    remember,
    requested,
    task_of,
)
from .symmetry import NotApplicable, forward, symmetric
from .walk import Grad, Retained, duplicate_functions, is_estimate, order_of


def grad(
    outputs: Variable | Iterable[Variable],
    inputs: Any,
    grad_outputs: Any = None,
    persistent_outputs: Sequence[bool] = (),
    bind_grad_output: bool = False,
    *,
    set_grad: bool = False,
    retain_grad: bool = False,
    loss_scale: float | Variable | None = None,
    enable_double_backprop: bool = True,
    unreachable: str = "zero",
    stop_gradients: Variable | Iterable[Variable] = (),
    recompute: Any = None,
) -> list[Variable]:
    """The gradient of the sum of `outputs` with respect to each of `inputs`, as a graph.

    The results are Variables of a graph made of ordinary functions: compute them with `forward()`
    or by reading `.d`, use them in a loss, or differentiate them again.

    Args:
        outputs: Variable or Variables to differentiate; the same one twice counts twice.
        inputs: Variables to differentiate by: leaves, or intermediate Variables; one, or several in a
            list, a dict, a scope, a pytree or a Module, in its order. A parameter that is not in the
            graph itself stands for the leaves that share its data.
        grad_outputs: Gradient at each output: None (ones), a number (for all outputs, or one each in
            a list), an array, an NdArray or a Variable of the output's shape. Gradients flow into a
            Variable.
        persistent_outputs: Sets `.persistent` of each output. Values of outputs can be read after a
            forward in any case.
        bind_grad_output: Use the `.grad` of the inputs as the gradients' data.
        set_grad: Keep each gradient at its input: `x.grad_var` is the Variable, and `x.g` its value,
            computed when it is read. This keeps the gradient's graph alive until `x.cleargrad()`.
        retain_grad: Keep the gradient of every Variable on the path in that manner, including outputs and inputs;
            `set_grad` is then ignored.
        loss_scale: A number, or a floating Variable of shape (), that multiplies the gradients at the outputs,
            whether given or ones, and thereby the results.
        enable_double_backprop: False emits the same functions, but no gradient passes through the results: a further
            `grad` treats them as constants.
        unreachable: The result for an input that no gradient can reach: 'zero' for zeros, 'none' for None instead
            of a Variable, 'raise' for a ValueError that gives its position. An input that is not of a floating dtype
            gets None or is refused.
        stop_gradients: Variables to treat as constants: gradients may end at them (as inputs), but do not
            pass them. The result is then a partial derivative.
        recompute: Which forward values the gradients recompute, so that they need not be kept: 'sqrt',
            'auto', `nn.MemoryBudget(bytes)`, `nn.Segments(levels)`, `nn.LeastMemory(extra)`, or a
            predicate on a Function. None follows the graph: what was built within
            `nn.recompute()`, and the settings of gradients in it. False keeps all. With a policy, a few graphs are
            compiled here, to choose the one that takes the least memory. See docs/memory.md.
    Returns:
        One Variable per input, of its shape and dtype; zeros, connected to nothing, if no path
        leads from it to an output.

    Raises:
        TypeError: Something is not a Variable, or an output is not of a floating dtype; or an input is not, unless
            `unreachable` is 'none'.
        ValueError: Lengths or shapes do not fit; or an input is unreachable, and `unreachable` is 'raise'. Or, in a
            function for `nn.vmap` or `F.scan`, an output is a row of what was computed outside from that of which an
            input is a row.
        MissingRule: An op on the path has no backward rule.
    """
    since = next_serial()
    request = requested(
        outputs, inputs, grad_outputs, loss_scale, stop_gradients, retain_grad, unreachable, recompute
    )._replace(keep=set_grad, bind=bind_grad_output, further=enable_double_backprop)
    persistent = checked_persistent(persistent_outputs, request.outputs)
    body = build_options().applying.body
    if body is not None:
        _check_made_inside(request, body)
    gradients, retained, lost = results(request, since)
    # All gradients are built; from here on they are handed out.
    for y, value in zip(request.outputs, persistent, strict=False):
        y.persistent = value
    if bind_grad_output:
        for x, gx in zip(request.inputs, gradients, strict=True):
            gx.data = x.grad
    if not enable_double_backprop:
        for gx in (*gradients, *retained.values()):
            gx.need_grad = False
    for x in [request.inputs[i] for i in lost if retained]:
        retained.pop(x, None)
        x.cleargrad()
    for x, gx in retained.items():
        x.grad_var = gx
    if build_options().applying.auto_forward:
        # Only now is it known which of the emitted functions are used.
        engine.run_functions(functions_of([*gradients, *retained.values()]))
    if len(gradients) > 1 or retained:
        together([*gradients, *retained.values()], functools.partial(_again, request, lost))
    for i in lost:
        gradients[i] = None  # type: ignore[call-overload]
    return gradients


def _again(request: Request, lost: Sequence[int]) -> list[Variable]:
    """Rebuild all that `grad` returned or kept."""
    gradients, retained, _ = results(request, next_serial())
    return [*gradients, *[gx for x, gx in retained.items() if x not in [request.inputs[i] for i in lost]]]


@contained
def results(request: Request, since: int) -> GradientResults:
    """The gradients, as Variables made since this serial number, and which of them are kept."""
    pause_collector()
    functions = functions_to_walk(request)
    question = question_of(request, functions, since) if len(functions) >= FEWEST_ASKED else None
    if question is not None and not was_asked_before(question):
        question = None
    known = None if question is None else known_answer(question)
    if known is not None:
        return known
    answer, is_users = watching_for_users_code(lambda: emitted_results(request, since, functions))
    if question is not None and not is_users:
        remember_answer(question, answer, since)
    return answer


def functions_to_walk(request: Request) -> list[Function]:
    """The functions that the outputs depend on, without those that come before every input: a gradient with respect to
    an intermediate value takes time in proportion to what lies after it.

    Only gradients of gradients, and recomputation, look further.
    """
    lowest = min([0 if x.parent is None else x.parent.rank + 1 for x in request.inputs], default=0)
    if lowest and request.recompute in (None, False):
        functions = functions_of(request.outputs, through=lambda x: x.parent is not None and x.parent.rank >= lowest)
        read = [x.parent for f in functions for x in f.inputs if x.parent is not None]
        if not derived_in(functions) and not is_marked(read):
            return functions
    return functions_of(request.outputs)


def emitted_results(request: Request, since: int, functions: list[Function]) -> GradientResults:
    """The gradients emitted anew, without the cache; `functions` are those above the outputs."""
    graph = emitted(request, functions)
    gradients = distinct_variables(graph.gradients, since, request.bind)
    unknown = graph.unknown if request.further else "enable_double_backprop is False"
    remember(graph.task, graph.mode, unknown, gradients)
    retained = dict(zip(request.inputs, gradients, strict=True)) if request.keep or request.retain else {}
    if graph.retained:
        distinct = distinct_variables([gx for _, gx in graph.retained], since, False, gradients)
        retained = dict(zip([x for x, _ in graph.retained], distinct, strict=True)) | retained
    return GradientResults(gradients, retained, graph.lost)


# ---------------------------------------------------------------- from a request to a graph


class Emitted(NamedTuple):
    """The graph emitted for a request."""

    gradients: list[Variable]
    retained: Retained
    """The Variables on the path, each with its gradient, if these are wanted."""
    lost: list[int]
    """The positions of the inputs that no gradient can reach, unless these get zeros."""
    task: Task
    mode: Mode
    unknown: str
    """Why the gradients cannot be recorded as derivatives; empty if they can."""


def emitted(request: Request, functions: list[Function] | None = None) -> Emitted:
    """Emit the gradients: choose a mode, traverse, and rematerialise if a policy says so. Call it where switches are
    `contained`; `functions` are those above the outputs, if they are known."""
    pause_collector()
    since = next_serial()
    if build_options().applying.auto_forward:
        Switched(auto_forward=False).from_now_on()
    task, owners = located(request, functions)
    lost = [] if request.unreachable == "zero" else unreachable_inputs(request, owners)
    built, gradients, pairs = in_mode(request, task, owners)
    unknown = "" if task.inputs is request.inputs else "an input stands for other leaves that share its data"
    if is_recomputed(request, task):

        @contained
        def emit(segments: Callable[[Function], tuple[int, ...]]) -> list[Variable]:
            Switched(segments=segments).from_now_on()
            _, again, others = in_mode(request, task, owners)
            return [*again, *[gx for _, gx in others]]

        every = [*gradients, *[gx for _, gx in pairs]]

        def handed_out(rebuilt: list[Variable]) -> list[Variable]:
            return [*request.outputs, *distinct_variables(rebuilt[: len(request.inputs)], since)]

        every = engine.rematerialised(
            task.outputs, every, request.recompute, request.runs_as or handed_out, task.seeds, emit,
        )  # fmt: skip
        gradients, rest = every[: len(gradients)], every[len(gradients) :]
        pairs = [(x, gx) for (x, _), gx in zip(pairs, rest, strict=True)]
    return Emitted(gradients, pairs, lost, task, built.mode, unknown)


def in_mode(
    request: Request, task: Task, owners: list[list[Variable]]
) -> tuple[Built, list[Variable], Retained]:
    """The gradients in the best mode, those of the inputs, and each Variable on the path with its gradient."""
    retained: Retained | None = [] if request.retain else None
    built = built_in_best_mode(task, retained)
    gradients = built.gradients
    if task.inputs is not request.inputs:  # the sum over the leaves that an input stands for
        rest = iter(gradients)
        parts = [[next(rest) for _ in leaves] for leaves in owners]
        gradients = [gxs[0] if len(gxs) == 1 else F.add_n(*gxs) for gxs in parts]
    at = request.retained_at
    return built, gradients, [(x, gx) for x, gx in retained or () if at is None or id(x) in at]


def located(request: Request, functions: list[Function] | None) -> tuple[Task, list[list[Variable]]]:
    """The task, and the Variables that each input stands for; see `own_leaves`."""
    task = task_of(request.outputs, request.inputs, request.seeds, request.stop_gradients, functions)
    owners = [[x] for x in request.inputs]
    loose = {id(x) for x in request.inputs if x.parent is None}
    loose -= {id(y) for y in request.outputs}
    for f in task.path:
        if not loose:
            break
        loose.difference_update(map(id, f.inputs))
    if loose:
        owners = owning(request.inputs, loose, leaves_of(request.outputs))
        inputs = [x for leaves in owners for x in leaves]
        if len(inputs) != len(owners) or any([x is not y for x, y in zip(inputs, request.inputs, strict=True)]):
            task = task_of(request.outputs, inputs, request.seeds, request.stop_gradients, functions)
    return task, owners


def own_leaves(outputs: list[Variable], inputs: list[Variable]) -> list[list[Variable]]:
    """The Variables that each input stands for: itself, or for a leaf outside the graph, all leaves in the graph that
    share its data."""
    loose = {id(x) for x in inputs if x.parent is None}
    leaves = leaves_of(outputs) if loose else []
    return owning(inputs, loose - {id(x) for x in leaves}, leaves)


def owning(inputs: Sequence[Variable], loose: set[int], leaves: list[Variable]) -> list[list[Variable]]:
    """For each input among the `loose`, those of `leaves` that share its data, if any; else just the input itself."""
    by_cell: dict[int, list[Variable]] = {}
    for x in leaves if loose else ():
        if x._data is not None:
            by_cell.setdefault(id(x._data), []).append(x)
    return [by_cell.get(id(x._data), [x]) if id(x) in loose else [x] for x in inputs]


def unreachable_inputs(request: Request, owners: Sequence[Sequence[Variable]]) -> list[int]:
    """The indices of the inputs that no gradient can reach."""
    reached = reached_from(request.outputs, frozenset([id(x) for x in request.stop_gradients]))
    lost = [i for i, leaves in enumerate(owners) if not any(id(x) in reached for x in leaves)]
    if lost and request.unreachable == "raise":
        raise ValueError(f"inputs{lost}: the outputs do not depend on them, or gradients cannot reach them")
    return lost


def _check_made_inside(request: Request, body: int) -> None:
    """Refuse, in a body of functions made since this serial number, the gradient of a row of an argument by a row of
    another that the former was computed from outside: it would be zero. Sums and other linear functions of one input
    do not matter, nor does it whether the output is a row or a whole."""
    rows = [x for x in request.inputs if stands_for(x) is not None]
    for y in request.outputs if rows else ():
        f = y.parent
        while f is not None and f.serial > body and len(f.inputs) == 1 and f.op.linear_in(0):
            (y,) = f.inputs
            f = y.parent
        if f is not None and f.serial > body:
            continue
        for x in rows:
            if x is not y and path_between(_arguments(y) or [y], _arguments(x))[0]:
                owner, _ = stands_for(x) or ("", x)
                raise ValueError(
                    f"grad in the function of {owner}: its output was computed outside, from what its input is a row "
                    "of. Within the function, rows do not depend on one another, and the gradient would be 0. Compute "
                    "in the function what you differentiate, from its arguments; or use nn.jacobian, nn.hessian or "
                    "nn.hessian_diagonal outside"
                )


def _arguments(x: Variable) -> list[Variable]:
    """The argument that a placeholder is a row of, the one that this is a row of in turn, and so on."""
    arguments = []
    while (stood_for := stands_for(x)) is not None:
        x = stood_for[1]
        arguments.append(x)
    return arguments


def is_recomputed(request: Request, task: Task) -> bool:
    """True if something may have to be recomputed, because there is a policy, or marks in the graph."""
    if request.recompute is not None and request.recompute is not False:
        return True
    seeds = [seed for seed in task.seeds if seed is not None and seed.parent is not None]
    return is_marked(task.functions) or bool(seeds and is_marked(functions_of(seeds)))


def is_marked(functions: Iterable[Function]) -> bool:
    """True if some of the functions are marked for rematerialisation."""
    return any([f.mark is not None for f in functions])


def distinct_variables(
    gradients: list[Variable], since: int, always: bool = False, others: Iterable[Variable] = ()
) -> list[Variable]:
    """`gradients` as Variables of their own: none is a leaf, older than `since`, one of `others`, or a duplicate.

    An older Variable belongs to somebody else: its name, its `need_grad`, and its record as another gradient. Nor may
    one be a constant, which would count as a number in a gradient with respect to it.
    """
    taken = {id(x) for x in others}
    results = []
    for gx in gradients:
        f = gx.parent
        if always or f is None or not f.inputs or f.serial < since or id(gx) in taken:
            gx = create(F.identity, (gx,), (), order=1 if f is None else max(1, f.order))
        taken.add(id(gx))
        results.append(gx)
    return results


# ---------------------------------------------------------------- modes


class Built(NamedTuple):
    """Gradients, and the mode that built them."""

    gradients: list[Variable]
    mode: Mode


@contained
def built_in_best_mode(task: Task, retained: Retained | None = None) -> Built:
    """Build the gradients in the mode that makes the smallest graph at higher orders.

    Args:
        task: The outputs and inputs.
        retained: A list to fill with every Variable on the path and its gradient.
    """
    if build_options().emitting.builder is None:
        Switched(builder=new_builder()).from_now_on()
    walked = None
    if retained is not None:
        # Only the reverse pass meets the gradients to retain. It runs in addition if the gradients that the next order
        # builds on can be computed in a better mode.
        walked = in_reverse(task, Grad(stop_ids=task.stop_ids, retained=retained))
    reason = obstacle_to_all(task)
    if not reason:
        try:
            return Built(forward(task), Mode("forward"))
        except NotApplicable as closed:
            reason = str(closed)
        if any([f.order for f in task.functions]):
            try:
                return Built(symmetric(task), Mode("symmetric"))
            except NotApplicable as closed:
                reason = str(closed)
    if walked is None:
        fixed = {id(x) for x in (*task.inputs, *task.outputs)} | task.stop_ids
        equal = duplicate_functions(task.functions, fixed)
        estimates = [f for f in task.path if f.op.diagonal and is_estimate(f)]
        if estimates:
            engine.warn_of_cancelled(task.outputs, task.path, task.active, estimates)
        walked = in_reverse(task, Grad(stop_ids=task.stop_ids, equal=equal))
    return Built(walked, Mode("reverse", reason))


def obstacle_to_all(task: Task) -> str:
    """Why no mode but the reverse pass applies; empty if others may."""
    options = build_options()
    if options.watched:
        return "hooks are in force" if options.hears(*AROUND) else "functions are watched as they run"
    if not options.emitting.simplify:
        return "simplification is off"
    if not any([f.order or f.op.cost is not None for f in task.functions]):
        return "there is no matrix product on the path"  # this is what higher orders could share with the first
    return ""


def in_reverse(task: Task, walk: Grad) -> list[Variable]:
    """The gradients by the reverse pass."""
    with emitting(task.functions, order_of(task.path)) as builder:
        return walk.walk(builder, task.path, task.active, task.outputs, task.inputs, task.seeds)
