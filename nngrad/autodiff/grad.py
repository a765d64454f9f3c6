"""grad(): gradients of Variables as Variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import nngrad.functions as F

from ..execution.forward import device_of
from ..execution.lower import linearize
from ..execution.program import Program
from ..graph import Variable, build_options, contained, create, engine, functions_of, leaves_of, switched
from ..graph.function import next_serial
from ..remat import rematerialised
from ..rewrite.builder import emitting
from . import symmetry
from .seeds import initial_gradients, scaled_seeds, seeds_of
from .steering import UNREACHABLE, Aggregate, check_choice, checked_aggregate, keep_gradient, unreachable_inputs
from .walk import Grad

Walk = Callable[[Sequence[Variable], Sequence[Variable], Sequence[Variable | None]], list[Variable]]


@contained
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
    recompute: Any = None,
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
            Variable, 'raise' a ValueError that gives its position. One that is not of a floating dtype gets None or
            is refused.
        aggregate: Sums the gradients that arrive at one Variable, a list of two or more Variables, into one
            Variable of their shape and dtype; by default `F.add_n` does, all at once.
        stop_gradients: Variables that count as constants: gradients may end at them (as inputs), but do not
            pass them. What is asked for is then a partial derivative.
        recompute: Which forward values the gradients compute again, so that they need not be kept: 'sqrt',
            'auto', `nn.MemoryBudget(bytes)`, `nn.Segments(levels)`, `nn.LeastMemory(extra)`, a predicate on a
            Function, or a list of the Variables to keep. None does as the graph says: what was built within
            `nn.recompute()`, and as a gradient in it was asked for. False keeps all. With a policy a few graphs are
            compiled here, to take the one that takes the least memory. See docs/memory.md.

    Returns:
        One Variable per input, of its shape and dtype; zeros, connected to nothing, where no way
        leads from it to an output.

    Raises:
        TypeError: Something is not a Variable, or an output is not of a floating dtype; or an input is not, unless
            `unreachable` is 'none'.
        ValueError: Lengths or shapes do not fit; an input is out of reach, where that is to raise.
        MissingRule: An op on the way has no backward rule.
    """
    outputs, inputs = variables(outputs, "outputs"), variables(inputs, "inputs")
    for i, y in enumerate(outputs):
        if not y.spec.differentiable:
            raise TypeError(f"outputs[{i}] is {y.dtype.name}; only floating dtypes can be differentiated")
    check_choice(unreachable, "unreachable", UNREACHABLE)
    for i, x in enumerate(inputs):
        if not x.spec.differentiable and unreachable != "none":
            raise TypeError(
                f"inputs[{i}] is {x.dtype.name}, which has no gradient; leave it out, give its data a floating dtype, "
                "or have None in its place with unreachable='none'"
            )
    since = next_serial()
    nothing_given = grad_outputs is None and loss_scale is None and grad_inputs is None
    with nullcontext() if nothing_given else emitting([], 1):
        seeds = scaled_seeds(outputs, seeds_of(outputs, grad_outputs), loss_scale)
        initial = initial_gradients(inputs, grad_inputs)
    ends = frozenset([id(x) for x in variables(stop_gradients, "stop_gradients")])
    persistent_outputs = list(persistent_outputs)
    if persistent_outputs and len(persistent_outputs) != len(outputs):
        raise ValueError(
            f"persistent_outputs: {len(persistent_outputs)} given for {len(outputs)} outputs; give one each or none"
        )

    owners = own_leaves(outputs, inputs)
    lost = [] if unreachable == "zero" else unreachable_inputs(outputs, owners, initial, ends)
    if lost and unreachable == "raise":
        raise ValueError(f"inputs{lost}: no gradient of the outputs can reach them")
    # A gradient that is there already is one that starts at its input.
    starts = [*outputs, *[own[0] for own, gx in zip(owners, initial, strict=True) if gx is not None]]
    seeds += [gx for gx in initial if gx is not None]
    retained: list[tuple[Variable, Variable]] = []
    steered = retain_grad or aggregate is not None or bool(ends) or build_options().watched
    walk: Walk = symmetry.gradients
    if steered:
        total = None if aggregate is None else checked_aggregate(aggregate)
        walk = Grad(aggregate=total, ends=ends, retained=retained if retain_grad else None)
    with switched(auto_forward=False):
        gradients = bound_gradients(starts, owners, seeds, walk)

        def program_of(found: list[Variable]) -> Program:
            results = distinct(found[: len(inputs)], since, bind_grad_output)
            return linearize([*outputs, *results], device=device_of(outputs)).program

        emitted = rematerialised(
            starts, [*gradients, *[gx for _, gx in retained]], recompute, program_of, seeds, inputs
        )
        gradients, kept_ones = emitted[: len(gradients)], emitted[len(gradients) :]
        retained = [(x, gx) for (x, _), gx in zip(retained, kept_ones, strict=True)]
        gradients = distinct(gradients, since, bind_grad_output)
        as_given = len(starts) == len(outputs) and all([own[0] is x for own, x in zip(owners, inputs, strict=True)])
        if as_given and enable_double_backprop and not steered:
            symmetry.remember(outputs, inputs, seeds, gradients)
        kept = dict(zip(inputs, gradients, strict=True)) if set_grad or retain_grad else {}
        if retained:
            own = distinct([gx for _, gx in retained], since, False, gradients)
            kept = dict(zip([x for x, _ in retained], own, strict=True)) | kept
    # All is there; from here on it is handed out.
    for y, persistent in zip(outputs, persistent_outputs, strict=False):
        y.persistent = bool(persistent)
    if bind_grad_output:
        for x, gx in zip(inputs, gradients, strict=True):
            gx.data = x.grad
    if not enable_double_backprop:
        for gx in (*gradients, *kept.values()):
            gx.need_grad = False
    for x in [inputs[i] for i in lost if kept]:
        kept.pop(x, None)
        x.cleargrad()
    for x, gx in kept.items():
        keep_gradient(x, gx)
    if build_options().auto_forward:
        # Only now is it known which of the emitted functions are of use.
        engine.run_functions(functions_of([*gradients, *kept.values()]))
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
    outputs: list[Variable], owners: list[list[Variable]], seeds: list[Variable | None], walk: Walk
) -> list[Variable]:
    """The gradients: for each list in `owners` their sum over what is in it."""
    gxs = walk(outputs, [x for own in owners for x in own], seeds)
    if len(gxs) == len(owners):
        return gxs
    rest = iter(gxs)
    parts = [[next(rest) for _ in own] for own in owners]
    return [gs[0] if len(gs) == 1 else F.add_n(*gs) for gs in parts]


def distinct(
    gradients: list[Variable], since: int, always: bool = False, others: Iterable[Variable] = ()
) -> list[Variable]:
    """`gradients` as Variables of their own: none is a leaf, older than `since`, one of `others`, or there twice.

    What was there already is another's: its name, its `need_grad`, and what it is remembered as the gradient of. Nor is
    one a constant, which would count as a number in a gradient that is taken with respect to it.
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
