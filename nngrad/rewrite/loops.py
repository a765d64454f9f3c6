"""Loops that carry the same thing several times carry it once.

A tangent of a loop that carries tangents carries some of them twice, if both are along the same direction: the
derivative of c along v, and that of c where its own derivative is taken. Were they kept apart, the nth derivative would
carry 2^n things in place of n + 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..functions.loops import scan_of_body
from ..functions.movement import broadcast, reshape
from ..graph import NdArray, Variable, build_options, switch
from ..graph.closing import close
from ..graph.derived import derived_once
from ..graph.loop import Loop, settled
from ..graph.variable import leaf_of
from .hash_consing import HashConsTable
from .rules import Arguments, Inputs, forms_without, rule

Classes = tuple[int, ...]
"""For each input of a body, the first input that it is equal to."""


class Merged(NamedTuple):
    """A loop without carries that are equal to others."""

    loop: Loop
    inputs: tuple[int, ...]
    """Which of the inputs it has."""
    outputs: tuple[int, ...]
    """For each result, and for each stack of a carry, which output of the merged loop it is."""
    starts: tuple[int, ...]
    """For each carry before segments, if there are some, which it is."""


@rule("equal-carries", scan_of_body)
def equal_carries(table: HashConsTable, op: Any, inputs: Inputs, arguments: Arguments) -> Any:
    """carries that start equal, and that each step makes equal, are one"""
    loop = Loop(*arguments)
    # A step gets a slice of what is scanned, which is not what it gets of the same Variable as a carry.
    first: dict[tuple[bool, Variable], int] = {}
    classes = tuple([first.setdefault((i >= loop.first_slice, x), i) for i, x in enumerate(inputs)])
    if len(set(classes[loop.fixed : loop.first_slice])) == loop.carries:
        return None
    merged = merged_loop(loop, classes)
    if merged is None:
        return None
    one = table.emit(op, tuple([inputs[i] for i in merged.inputs]), tuple(merged.loop))
    outputs = [one[i] for i in merged.outputs]
    # What a gradient reads beside these it reads at the function that it differentiates.
    rest = table.node(op, inputs, arguments)[len(outputs) : loop.first_start]
    return (*outputs, *rest, *[one[i] for i in merged.starts])


@rule("unchanging-carries", scan_of_body)
def unchanging_carries(table: HashConsTable, op: Any, inputs: Inputs, arguments: Arguments) -> Any:
    """a carry that no step changes is the same at each step"""
    loop = Loop(*arguments)
    found = settled(loop)
    if found is None:
        return None
    one = table.emit(op, tuple([inputs[i] for i in found.inputs]), tuple(found.loop))
    made, before = iter(one[: found.loop.results]), iter(one[found.loop.results :])
    carries = [inputs[loop.fixed + j] for j in range(loop.carries)]
    finals = [x if j in found.unchanging else next(made) for j, x in enumerate(carries)]
    outputs = [
        *finals, *made,
        *[_repeated(x, loop.length) if j in found.unchanging else next(before) for j, x in enumerate(carries)],
    ]  # fmt: skip
    # What a gradient reads beside these it reads at the function that it differentiates.
    rest = table.node(op, inputs, arguments)[len(outputs) : loop.first_start]
    own = iter(one[found.loop.first_start :])
    starts = [
        _repeated(x, spec.shape[0]) if j in found.unchanging else next(own)
        for j, (x, spec) in enumerate(zip(carries, loop.start_specs(), strict=False))
    ]
    return (*outputs, *rest, *starts)


def _repeated(x: Variable, length: int) -> Variable:
    """`x` for each step."""
    return broadcast(reshape(x, (1, *x.shape)), (length, *x.shape))


@derived_once
def merged_loop(loop: Loop, classes: Classes) -> Merged | None:
    """Returns the loop with equal carries as one; None if none are equal.

    Args:
        loop: The loop.
        classes: Which inputs are the same when the first step begins.
    """
    body, carried = loop.body, range(loop.fixed, loop.first_slice)
    leaves = [leaf_of(NdArray.of_spec(spec)) for spec in body.inputs]
    without = build_options().emitting.simplify
    builder = HashConsTable(forms_without(without if isinstance(without, frozenset) else frozenset()))
    switch(builder=builder)
    while True:
        inputs = [leaves[classes[i]] for i in range(len(leaves))]
        values = _rewritten(builder, loop, inputs)
        results = [inputs[i] if i >= 0 else values[~i] for i in body.outputs]
        found: dict[tuple[int, Variable], int] = {}
        told_apart = [found.setdefault((classes[i], y), i) for i, y in zip(carried, results, strict=False)]
        after = (*classes[: loop.fixed], *told_apart, *classes[loop.first_slice :])
        if after == classes:
            break
        classes = after
    if len(set(told_apart)) == len(told_apart):
        return None
    kept = [i for i in range(len(leaves)) if classes[i] == i or i not in carried]
    carries = [i for i in kept if i in carried]
    finals = [results[i - loop.fixed] for i in carries]
    made = close([*finals, *results[loop.carries :]], [leaves[i] for i in kept])
    merged = loop._replace(body=made, carries=len(carries))
    stacks = len(results) - loop.carries
    place = {i: k for k, i in enumerate(carries)}
    outputs = (
        *[place[i] for i in told_apart], *range(len(carries), len(carries) + stacks),
        *[len(carries) + stacks + place[i] for i in told_apart],
    )  # fmt: skip
    starts = tuple([merged.first_start + place[i] for i in told_apart]) if loop.segments else ()
    return Merged(merged, tuple(kept), outputs, starts)


def _rewritten(builder: HashConsTable, loop: Loop, inputs: list[Variable]) -> list[Variable]:
    """Returns the values of the body of `loop`, of which what gradients have emitted is brought to canonical form."""
    values: list[Variable] = []
    body = loop.body
    places = body.places or (None,) * len(body.steps)
    for (op, arguments, ins), order, place in zip(body.steps, body.orders, places, strict=True):
        given = tuple([inputs[i] if i >= 0 else values[~i] for i in ins])
        builder.order = order
        apply = builder.emit if order and op.sibling_fusion is None else builder.node
        made = apply(op, given, arguments)
        values.extend(made if op.multiple_results else (made,))
        f = values[-1].parent
        if place is not None and f is not None and not hasattr(f, "place"):
            f.place = place
    for number in body.stops:
        values[~number].need_grad = False
    return values
