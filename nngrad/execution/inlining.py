"""Bodies in place of the functions that are just a body: a pass for every platform."""

from __future__ import annotations

from ..graph.block import Block
from ..graph.body_op import in_place_of
from .calls import Call, block_of, calls_of


def with_bodies_inline(block: Block) -> Block:
    """The block with the steps of its body in place of each function that is just that.

    So the passes that come later, and the estimate of memory, see what runs.
    """
    while any([in_place_of(op, arguments) is not None for op, arguments, _ in block.steps]):
        block = _one_level(block)
    return block


def _one_level(block: Block) -> Block:
    calls, specs = calls_of(block)
    free = min(specs, default=0)
    instead = {i: i for i in specs}
    found: list[Call] = []
    for op, arguments, ins, outs in calls:
        given = tuple([instead[i] for i in ins])
        body = in_place_of(op, arguments)
        if body is None:
            found.append(Call(op, arguments, given, outs))
            continue
        values: list[int] = []
        for (inner, own, numbers), results in zip(body.steps, body.results, strict=True):
            taken = tuple([given[i] if i >= 0 else values[~i] for i in numbers])
            made = tuple([free - 1 - k for k in range(len(results))])
            free -= len(results)
            values += made
            found.append(Call(inner, own, taken, made))
        instead.update(zip(outs, [given[i] if i >= 0 else values[~i] for i in body.outputs], strict=True))
    return block_of(block.inputs, found, [instead[i] for i in block.outputs])
