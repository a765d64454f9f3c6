"""How axes go through ops with bodies: found by going through the bodies.

Of a loop it is asked again what a step makes of the carries, until that changes nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..functions.branches import switch_of_bodies
from ..functions.checkpoints import checkpoint_of_body
from ..functions.loops import scan_of_body
from ..functions.while_loops import while_of_bodies
from ..graph import Function, NdArray, Variable, functions_of
from ..graph.block import Block
from ..graph.derived import derived_once
from ..graph.loop import Loop
from ..graph.variable import leaf_of

Axes = tuple[int, ...]
Followed = Mapping[int, Axes | None]
"""By number, for each that depends on what is followed: the axes that this has become, or None where some are mixed."""
Given = Sequence[tuple[int, Axes | None]]
"""The same of inputs, as pairs."""
Walk = Callable[[Sequence[Function], dict[int, Axes | None], int], None]
"""Goes through functions, and enters what becomes of the axes, by the ids of Variables; the last is how many axes."""


def through_body(body: Block, given: Followed, count: int, walk: Walk) -> Followed:
    """What becomes of `count` axes of some inputs of a body, in these and all values."""
    return _through_body(body, tuple(sorted(given.items())), count, walk)


@derived_once
def _through_body(body: Block, given: tuple[tuple[int, Axes | None], ...], count: int, walk: Walk) -> Followed:
    inputs = [leaf_of(NdArray.of_spec(spec)) for spec in body.inputs]
    values = body.instantiate(inputs)
    found = {id(inputs[i]): axes for i, axes in given}
    walk(functions_of(values), found, count)
    numbered: list[tuple[int, Variable]] = [*enumerate(inputs), *[(~k, y) for k, y in enumerate(values)]]
    return {number: found[id(x)] for number, x in numbered if id(x) in found}


def through_loop(
    body: Block, fixed: int, carries: int, given: Followed, count: int, walk: Walk, mixed: bool
) -> Followed:
    """What becomes of `count` axes at all steps.

    Args:
        body: What is run at each step.
        fixed: How many of its inputs are the same at each step.
        carries: How many are carries.
        given: What is followed: inputs; those that are carries, as they are at the first step.
        count: How many axes.
        walk: What goes through functions.
        mixed: Whether steps are told apart by an axis that is followed, so that a carry, which comes from other steps,
            mixes it.
    """
    state = dict(given)
    while True:
        found = through_body(body, state, count, walk)
        before = dict(state)
        for j in range(carries):
            number = body.outputs[j]
            if number in found:
                after = None if mixed else found[number]
                state[fixed + j] = after if state.get(fixed + j, after) == after else None
        if state == before:
            return found


def scan_axes(f: Function, given: Given, count: int, walk: Walk) -> Followed:
    """Through a loop. An axis may be that of the steps, if nothing of it is carried from step to step."""
    loop = Loop(*f.arguments)
    positions = {axes.index(0) for i, axes in given if axes is not None and i >= loop.first_slice and 0 in axes}
    steps = min(positions, default=None)
    state: dict[int, Axes | None] = {}
    for i, axes in given:
        if axes is None or (steps is not None and (i < loop.first_slice or axes[steps] != 0)):
            state[i] = None
        elif i >= loop.first_slice:
            state[i] = tuple([a - 1 for k, a in enumerate(axes) if k != steps])
        else:
            state[i] = axes
    rest = count - (steps is not None)
    found = through_loop(loop.body, loop.fixed, loop.carries, state, rest, walk, mixed=steps is not None)
    results: dict[int, Axes | None] = {}
    for j in range(loop.carries):
        if loop.fixed + j in found:
            results[j] = found[loop.fixed + j]
    for place, number in enumerate(loop.stacked, start=loop.carries):
        if number in found:
            axes = found[number]
            results[place] = None if axes is None else _stacked(axes, steps)
    for j in range(loop.carries if loop.segments else 0):
        if loop.fixed + j in found:
            axes = found[loop.fixed + j]
            results[loop.first_start + j] = None if axes is None or steps is not None else _stacked(axes, None)
    return results


def _stacked(axes: Axes, steps: int | None) -> Axes:
    """Axes of a value, in the stack of it."""
    found = [a + 1 for a in axes]
    if steps is not None:
        found.insert(steps, 0)
    return tuple(found)


def checkpoint_axes(f: Function, given: Given, count: int, walk: Walk) -> Followed:
    """Through a body."""
    body: Block = f.arguments[0]
    found = through_body(body, dict(given), count, walk)
    return {k: found[number] for k, number in enumerate(body.outputs) if number in found}


def switch_axes(f: Function, given: Given, count: int, walk: Walk) -> Followed:
    """Through branches, all of which must carry the axes to the same places."""
    bodies: tuple[Block, ...] = f.arguments[0]
    if any([i == 0 for i, _ in given]):  # a number that is made of all rows says which branch is taken
        return dict.fromkeys(range(len(f.specs)))
    results: dict[int, Axes | None] = {}
    for body in bodies:
        found = through_body(body, {i - 1: axes for i, axes in given}, count, walk)
        for k, number in enumerate(body.outputs):
            if number in found:
                axes = found[number]
                results[k] = axes if results.get(k, axes) == axes else None
    return results


def while_axes(f: Function, given: Given, count: int, walk: Walk) -> Followed:
    """Through a loop whose condition does not depend on what is followed."""
    goes_on, body, fixed = f.arguments
    carries = len(body.outputs)
    found = through_loop(body, fixed, carries, dict(given), count, walk, mixed=False)
    inputs = {i: axes for i, axes in found.items() if i >= 0}
    if goes_on.outputs[0] in through_body(goes_on, inputs, count, walk):
        return dict.fromkeys(range(carries))
    return {j: found[fixed + j] for j in range(carries) if fixed + j in found}


followers: dict[Any, Callable[[Function, Given, int, Walk], Followed]] = {
    checkpoint_of_body: checkpoint_axes, scan_of_body: scan_axes, switch_of_bodies: switch_axes,
    while_of_bodies: while_axes,
}  # fmt: skip
"""For each op with bodies: `follower(f, given, count, walk)` gives the axes of those outputs that depend on inputs."""
