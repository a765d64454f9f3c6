"""Forms of ops that have bodies, for inputs that get one more, leading, axis: the batch of a body is a body.

A loop stays one loop, of which those carries have the axis that depend on something that has it. Branches stay
branches where all elements take the same one, and otherwise all branches are computed, and what is taken selected. A
loop that counts its steps goes on until all elements are done, and those that are done stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import nngrad.functions as F
from nngrad.functions.branches import switch_dependence, switch_of_bodies
from nngrad.functions.checkpoints import checkpoint_of_body
from nngrad.functions.loops import scan_of_body
from nngrad.functions.while_loops import while_of_bodies
from nngrad.graph import Function, NdArray, Variable, apply, create
from nngrad.graph.block import Block
from nngrad.graph.closing import close
from nngrad.graph.derived import derived_once
from nngrad.graph.loop import Loop, depending_throughout
from nngrad.graph.spec import spec_of
from nngrad.graph.variable import leaf_of

from .batching import Operand, repeated, size_of

Results = tuple[Variable | None, ...]
BodyForm = Callable[[Function, Sequence[Operand], Sequence[bool]], Results]
"""Takes a function, its operands, and for each output whether somebody reads it; returns what the outputs become, with
the axis where they depend on what has it. What nobody reads may be None."""

Kinds = tuple[str, ...]
Demanded = Callable[[Block, tuple[int, ...], tuple[int, ...], tuple[int, ...]], tuple[Any, Any]]

body_forms: dict[Any, BodyForm] = {}


def applied_body(body: Block, inputs: Sequence[Variable], wanted: Sequence[int]) -> list[Variable]:
    """What a body computes from these inputs, as functions of the graph.

    Args:
        body: The body.
        inputs: Its inputs.
        wanted: Numbers of the values that are returned.
    """
    values: list[Variable] = []
    for op, arguments, ins in body.steps:
        made = apply(op, tuple([inputs[i] if i >= 0 else values[~i] for i in ins]), arguments)
        for y in made if op.multiple_results else (made,):
            values.append(F.unlink(y) if ~len(values) in body.stops else y)
    return [inputs[i] if i >= 0 else values[~i] for i in wanted]


def _each(led: Iterable[bool]) -> Kinds:
    """What a body has of inputs or outputs: "each" of those that are `led`."""
    return tuple(["each" if is_led else "" for is_led in led])


def _swapped(x: Variable) -> Variable:
    """The first two axes in the other order."""
    return F.swapaxes(x, 0, 1)


# ---------------------------------------------------------------- loops


def _scan_batched(f: Function, operands: Sequence[Operand], read: Sequence[bool]) -> Results:
    """One loop that computes each element"""
    loop, (count,) = Loop(*f.arguments), size_of(operands)
    depending = loop.depending([i for i, each in enumerate(operands) if each.lead])
    kinds = _each([i in depending for i in range(len(operands))])
    return scan_in_kinds(f, operands, kinds, ["each" if is_read else "" for is_read in read], count)[0]


def scan_in_kinds(
    f: Function, operands: Sequence[Operand], kinds: Kinds, read: Sequence[str], count: int
) -> tuple[Results, Results]:
    """One loop. Of what is scanned, and of what is stacked, the steps come first within a loop and second outside.

    Args:
        f: The loop.
        operands: What its inputs become.
        kinds: For each input what the body has of it, at any step: "each", "sum", or "" if it is the same for all.
        read: For each output what is read of it: "each", "sum", or "" for nothing.
        count: How many elements there are.

    Returns:
        What the outputs become, and what their sums are; None for what is not read or not computed.
    """
    loop = Loop(*f.arguments)
    body = loop.body
    depending = loop.depending([i for i, kind in enumerate(kinds) if kind])
    wanted = [*dict.fromkeys([
        (number, "sum" if kind == "sum" and number in depending else "")
        for number, kind in zip(loop.stacked, read[loop.carries : loop.first_start], strict=True) if kind
    ])]  # fmt: skip
    carried = kinds[loop.fixed : loop.first_slice]
    numbers = (*body.outputs[: loop.carries], *[number for number, _ in wanted])
    step = body.batched(kinds, count, numbers, (*carried, *[kind for _, kind in wanted]))
    inputs = []
    for i, (each, kind) in enumerate(zip(operands, kinds, strict=True)):
        value = each.widened()
        if kind == "each" and loop.fixed <= i < loop.first_slice:
            value = each.full((count,))
        elif kind == "each" and i >= loop.first_slice:
            value = _swapped(value)
        inputs.append(value)
    outputs = apply(scan_of_body, tuple(inputs), (step, *loop[1:]))
    stacks: dict[tuple[int, str], Variable] = {}
    for (number, kind), y in zip(wanted, outputs[loop.carries :], strict=False):
        stacks[number, kind] = _swapped(y) if number in depending and kind != "sum" else y
    finals = list(zip(carried, outputs, strict=False))
    starts = list(zip(carried, outputs[Loop(step, *loop[1:]).first_start :], strict=False))
    return (
        (
            *[None if kind == "sum" else y for kind, y in finals], *[stacks.get((n, "")) for n in loop.stacked],
            *[None if kind == "sum" else _swapped(y) if kind else y for kind, y in starts],
        ),
        (
            *[y if kind == "sum" else None for kind, y in finals], *[stacks.get((n, "sum")) for n in loop.stacked],
            *[y if kind == "sum" else None for kind, y in starts],
        ),
    )  # fmt: skip


def kinds_of_loop(
    loop: Loop, moved: Sequence[bool], each: Sequence[bool], sums: Sequence[bool], demanded: Demanded
) -> Kinds:
    """What a loop needs of each input of its body, at any step: "each", "sum", or "" if it is the same for all.

    A carry is summed where nothing but its sum is needed of it at any step, and of what it becomes.

    Args:
        loop: The loop.
        moved: For each input whether it has the leading axis.
        each: For each output whether each element of it is wanted.
        sums: For each output whether its sum is wanted.
        demanded: Says this of a body: of it, the inputs that have the axis, what is wanted for each, and as its sum.
    """
    body = loop.body
    depending = loop.depending([i for i, m in enumerate(moved) if m])
    led = tuple([i for i in range(len(body.inputs)) if i in depending])
    carries = {i: body.outputs[i - loop.fixed] for i in led if loop.fixed <= i < loop.first_slice}
    stacked = slice(loop.carries, loop.first_start)
    stacks = [n for n, wanted in zip(loop.stacked, each[stacked], strict=True) if wanted]
    totals = [n for n, wanted in zip(loop.stacked, sums[stacked], strict=True) if wanted]
    starts = each[loop.first_start :] or (False,) * loop.carries
    kinds: dict[int, str] = {}
    for i in led:
        spec = body.inputs[i]
        if not spec.differentiable or spec.dtype.itemsize < 4:  # sums of such are of another dtype
            kinds[i] = "each"
        elif i in carries:
            kinds[i] = "each" if each[i - loop.fixed] or starts[i - loop.fixed] else "sum"
    while True:
        wanted = dict.fromkeys([*stacks, *[carries[i] for i in carries if kinds[i] == "each"]])
        total = dict.fromkeys([*totals, *[carries[i] for i in carries if kinds[i] == "sum"]])
        found, summed = demanded(body, led, tuple(wanted), tuple([n for n in total if n not in wanted]))
        more = {i for i in found if kinds.get(i) == "sum"}
        if not more:
            return tuple([
                "" if i not in led else kinds.get(i, "sum" if i in summed and i not in found else "each")
                for i in range(len(body.inputs))
            ])
        kinds.update(dict.fromkeys(more, "each"))


def _checkpoint_batched(f: Function, operands: Sequence[Operand], read: Sequence[bool]) -> Results:
    """A checkpoint of the body with one more axis"""
    del read
    body, (count,) = f.arguments[0], size_of(operands)
    led = tuple([bool(each.lead) for each in operands])
    depending = body.depending([i for i, is_led in enumerate(led) if is_led])
    made = body.batched(_each(led), count, body.outputs, _each([number in depending for number in body.outputs]))
    inputs = tuple([each.full((count,)) if each.lead else each.widened() for each in operands])
    results: Results = apply(checkpoint_of_body, inputs, (made,))
    return results


def _while_batched(f: Function, operands: Sequence[Operand], read: Sequence[bool]) -> Results:
    """One loop, as long as the condition holds of some element; those of which it does not hold stay as they are"""
    del read
    goes_on, body, fixed = f.arguments
    (count,) = size_of(operands)
    carries = len(body.outputs)
    depending = depending_throughout(body, fixed, carries, [i for i, each in enumerate(operands) if each.lead])
    led = tuple([i in depending for i in range(len(body.inputs))])
    apart = goes_on.outputs[0] in goes_on.depending([i for i, is_led in enumerate(led) if is_led])
    if apart:  # elements stop at different steps
        led = (*led[:fixed], *(True,) * carries)
        condition, step = _until_all_are_done(goes_on, body, fixed, led, count)
    else:
        condition = goes_on.batched(_each(led), count, goes_on.outputs, ("",))
        step = body.batched(_each(led), count, body.outputs, _each(led[fixed:]))
    inputs = tuple([
        each.full((count,)) if is_led and i >= fixed else each.widened()
        for i, (each, is_led) in enumerate(zip(operands, led, strict=True))
    ])
    results: Results = apply(while_of_bodies, inputs, (condition, step, fixed))
    return results


@derived_once
def _until_all_are_done(
    goes_on: Block, body: Block, fixed: int, led: tuple[bool, ...], count: int
) -> tuple[Block, Block]:
    """The condition and the step of a loop of which each element may stop at another step."""
    condition = goes_on.batched(_each(led), count, goes_on.outputs, ("each",))
    step = body.batched(_each(led), count, body.outputs, ("each",) * len(body.outputs))
    order = max(body.orders, default=0)
    some = _leaves_of(condition)
    (holds,) = _values_at(condition, some)
    holding = create(F.cast, (holds,), ("bool",), order=order)
    how_many = create(F.sum, (holding,), (None, False), order=order)
    inputs = _leaves_of(step)
    runs = create(F.cast, tuple(_values_at(condition, inputs)), ("bool",), order=order)
    given = inputs
    if _may_not_end(body):
        given = [*inputs[:fixed], *_with_stand_ins(runs, inputs[fixed:])]
    after = [
        create(F.where, (runs, new, x), (), order=order)
        for new, x in zip(_values_at(step, given), inputs[fixed:], strict=True)
    ]
    return close([how_many], some), close(after, inputs)


def _leaves_of(body: Block) -> list[Variable]:
    return [leaf_of(NdArray.of_spec(spec)) for spec in body.inputs]


def _values_at(body: Block, inputs: Sequence[Variable]) -> list[Variable]:
    """The outputs of a body, newly made, for these inputs."""
    values = body.instantiate(inputs)
    return [inputs[i] if i >= 0 else values[~i] for i in body.outputs]


# ---------------------------------------------------------------- branches


def _switch_batched(f: Function, operands: Sequence[Operand], read: Sequence[bool]) -> Results:
    """Branches, where all elements take the same one; else what each takes, selected"""
    del read
    index, *others = operands
    bodies: tuple[Block, ...] = f.arguments[0]
    (count,) = size_of(operands)
    led = tuple([bool(each.lead) for each in others])
    if not index.lead:
        full = switch_dependence(f.arguments, (False, *led))
        branches = tuple([body.batched(_each(led), count, body.outputs, _each(full)) for body in bodies])
        inputs = tuple([each.widened() for each in others])
        results: Results = apply(switch_of_bodies, (index.widened(), *inputs), (branches,))
        return results
    given = [each.widened() for each in others]
    last = len(bodies) - 1
    selected: list[Variable] = []
    for i, body in enumerate(bodies):
        is_index = F.less_equal_scalar if i == 0 else F.greater_equal_scalar if i == last else F.equal_scalar
        # As truth values they have no part in the dtype of what is selected.
        taken = F.cast(is_index(index.value, val=i), "bool")
        found = _of_the_taken(body, led, count, given, taken)
        selected = [F.where(taken, new, y) for new, y in zip(found, selected, strict=True)] if i else found
    return tuple(selected)


def _of_the_taken(
    body: Block, led: tuple[bool, ...], count: int, given: list[Variable], taken: Variable
) -> list[Variable]:
    """The results of a branch, for those elements that take it; what the others get does not matter."""
    full = ("each",) * len(body.outputs)
    if not _is_hidden(body):
        many = body.batched(_each(led), count, body.outputs, full)
        return applied_body(many, given, many.outputs)
    # What a selection is moved outside of cannot be seen here, so that a derivative that is infinite for an element
    # that does not take the branch would come through. These get the inputs of one that does, and there is one.
    step = body.batched(("each",) * len(led), count, body.outputs, full)
    wide = [x if is_led else repeated(x, (count, *x.shape)) for x, is_led in zip(given, led, strict=True)]
    safe = _with_stand_ins(taken, wide)
    specs = [body.spec(i) for i in body.outputs]
    zeros = _zeros(step.inputs, tuple([spec_of((count, *spec.shape), spec.dtype) for spec in specs]))
    some = F.cast(F.not_equal_scalar(F.sum(taken), val=0), "int32")
    return list(apply(switch_of_bodies, (some, *safe), ((zeros, step),)))


def _zeros(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> Block:
    """A body that gives zeros."""
    steps = tuple([(F.constant, (0.0, spec.shape, spec.dtype), ()) for spec in outputs])
    return Block(inputs, steps, (0,) * len(steps), tuple([~k for k in range(len(steps))]))


def _with_stand_ins(taken: Variable, xs: Sequence[Variable]) -> list[Variable]:
    """`xs`, where elements along the first axis that are not taken are replaced by the first one that is."""
    first = F.reshape(F.argmax(taken), shape=(1,))
    return [F.where(taken, x, repeated(F.take_points(x, first, axes=(0,)), x.shape)) for x in xs]


def _is_hidden(body: Block) -> bool:
    """Whether there is a derivative in it that may be infinite, and a selection cannot be moved outside of it: below
    it, or in it, is a function through which masks do not go (`nngrad/rewrite/masks.py`)."""
    risky: set[int] = set()
    count = 0
    for op, arguments, ins in body.steps:
        made = len(op.result_specs(tuple([body.spec(i) for i in ins]), arguments))
        at_risk = not risky.isdisjoint(ins)
        passes = op.diagonal or not ins or (op.axes is not None and len(ins) == 1)
        if (at_risk and not passes) or (ins and not op.diagonal and op.axes is None):
            return True
        may_be_infinite = op.unbounded and op.linear != "each"
        if at_risk or may_be_infinite or not (op.diagonal or op.linear):
            risky.update([~k for k in range(count, count + made)])
        count += made
    return False


def _may_not_end(body: Block) -> bool:
    """Whether there are loops in it that count no steps."""
    return while_of_bodies in body.ops


body_forms.update({
    checkpoint_of_body: _checkpoint_batched, scan_of_body: _scan_batched, while_of_bodies: _while_batched,
    switch_of_bodies: _switch_batched
})
