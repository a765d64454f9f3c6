"""Loops that are looked into: the body with its names, and a loop that runs a step at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..graph.loop import Loop
from ..graph.within import Steps, Within, outputs_of


def bodies_of_loop(arguments: tuple[Any, ...], count: int) -> tuple[Within, ...]:
    """The one body that a loop has."""
    loop = Loop(*arguments)
    slices, stacks = count - loop.first_slice, loop.results - loop.carries
    inputs = (*_numbered("same", loop.fixed), *_numbered("carry", loop.carries), *_numbered("slice", slices))
    outputs = (*_numbered("carry", loop.carries), *_numbered("stacked", stacks))
    finals = [("at the end", number) for number in loop.body.outputs[: loop.carries]]
    starts = [("before each segment", loop.fixed + j) for j in range(loop.carries)] if loop.segments else []
    gives = (*finals, *[("of each step", number) for number in loop.stacked], *starts)
    return (Within("body", loop.body, loop.length, inputs, outputs, tuple(range(count)), gives),)


def _numbered(name: str, count: int) -> list[str]:
    return [f"{name}{i}" for i in range(count)]


def loop_in_steps(arguments: tuple[Any, ...], inputs: Sequence[Any], steps: Steps[Any]) -> list[Any]:
    """The same as the forward of a loop, with a body that is looked at."""
    loop = Loop(*arguments)
    body, same, scanned = loop.body, inputs[: loop.fixed], inputs[loop.first_slice :]
    carry = list(inputs[loop.fixed : loop.first_slice])
    rows = []
    before = {}
    for number in reversed(range(loop.length)) if loop.reverse else range(loop.length):
        before[number] = carry
        given = [*same, *carry, *[steps.slice(x, number) for x in scanned]]
        values = steps.run("body", body, given, number)
        carry = outputs_of(body, given, values)[: loop.carries]
        rows.append([given[i] if i >= 0 else values[~i] for i in loop.stacked])
    if loop.reverse:
        rows.reverse()
    specs = [loop.stack_spec(number) for number in loop.stacked]
    starts = [
        steps.stack([before[number][j] for number in loop.first_steps()], spec)
        for j, spec in enumerate(loop.start_specs())
    ]
    return [*carry, *[steps.stack([row[k] for row in rows], spec) for k, spec in enumerate(specs)], *starts]
