"""Bodies in place of the functions that are just a body: a pass for every platform."""

from __future__ import annotations

from ..graph.block import Block
from .program import Call, Program, calls_of, renumbered


def with_bodies_inline(program: Program) -> Program:
    """The program with the steps of its body in place of each function that is just that.

    So the passes that come later, and the estimate of memory, see what runs.
    """
    while any([op.expands is not None for op, _, _ in program.steps]):
        program = _one_level(program)
    return program


def _one_level(program: Program) -> Program:
    calls, specs = calls_of(program)
    free = min(specs, default=0)
    instead = {i: i for i in specs}
    found: list[Call] = []
    for op, arguments, ins, outs in calls:
        given = tuple([instead[i] for i in ins])
        if op.expands is None:
            found.append(Call(op, arguments, given, outs))
            continue
        body: Block = op.expands(*arguments)
        values: list[int] = []
        for inner, own, numbers in body.steps:
            taken = tuple([given[i] if i >= 0 else values[~i] for i in numbers])
            count = len(inner.result_specs(tuple([body.spec(i) for i in numbers]), own))
            made = tuple([free - 1 - k for k in range(count)])
            free -= count
            values += made
            found.append(Call(inner, own, taken, made))
        instead.update(zip(outs, [given[i] if i >= 0 else values[~i] for i in body.outputs], strict=True))
    return renumbered(program, found, instead)
