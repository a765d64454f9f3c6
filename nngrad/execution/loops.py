"""Loops that can run together, as one loop: a pass for every platform."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph import Op
from ..graph.block import Block
from ..graph.body_op import ControlOp
from ..graph.traverse import operands_first
from .calls import Call, block_of, calls_of


def with_loops_together(block: Block) -> Block:
    """The block with one loop in place of several that have steps in common.

    Loops are asked about together if as many others come before each of them on the longest way to a leaf: then none of
    them depends on another.
    """
    if not any([_is_loop(op) for op, _, _ in block.steps]):
        return block
    calls, _ = calls_of(block)
    ranks: dict[int, int] = {}
    sides: dict[tuple[object, int], list[Call]] = {}
    for call in calls:
        rank = max([ranks.get(i, 0) for i in call.ins], default=0)
        if _is_loop(call.op):
            sides.setdefault((call.op, rank), []).append(call)
            rank += 1
        ranks.update(dict.fromkeys(call.outs, rank))
    instead: dict[int, int] = {}
    made: dict[int, Call] = {}
    count = sum([len(call.outs) for call in calls])
    for side in sides.values():
        op = side[0].op
        assert isinstance(op, ControlOp)
        for group in op.sibling_fusion([(call.arguments, call.ins) for call in side]):
            outs = tuple([~(count + k) for k in range(len(op.result_specs((), group.arguments)))])
            count += len(outs)
            one = Call(op, group.arguments, group.ins, outs)
            for member, own in zip(group.members, group.outs, strict=True):
                instead.update(zip(side[member].outs, [outs[k] for k in own], strict=True))
                made[id(side[member])] = one
    if not made:
        return block
    return block_of(block.inputs, _in_order(calls, made, instead), [instead.get(i, i) for i in block.outputs])


def _is_loop(op: Op) -> bool:
    return isinstance(op, ControlOp) and op.is_loop


def _in_order(calls: Sequence[Call], made: dict[int, Call], instead: dict[int, int]) -> list[Call]:
    """The calls, and those that were made in place of some of them, each after what it reads."""
    kept = [made.get(id(call), call) for call in calls]
    found = {
        id(call): call._replace(ins=tuple([instead.get(i, i) for i in call.ins])) for call in kept
    }
    source = {out: call for call in found.values() for out in call.outs}
    return operands_first(found.values(), lambda call: [source[i] for i in call.ins if i in source])
