"""Calls that keep XLA's CPU compiler from recomputing sines, cosines and tangents in every loop that reads them.

XLA recomputes an operation that it considers cheap in each loop that reads it. It considers these as cheap as a product
(`TAKEN_FOR_LIGHT`), but they take as long as dozens. Other slow functions, such as `exp` and `tanh`, it stores by
itself if several loops read them.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

from ..extend import Block, Op
from ..functions.barriers import computed_once
from .facts import TAKEN_FOR_LIGHT
from .substitutes import with_ops
from .thresholds import WORTH_A_CALL


def with_sines_once(block: Block) -> Block:
    """The block with barriers after sines and the like that several calls read, also in bodies; unchanged if there are
    none."""
    if TAKEN_FOR_LIGHT.isdisjoint(block.ops):
        return block
    calls, specs = block.calls, block.spec_by_number
    readers = Counter([*block.outputs, *[i for call in calls for i in {*call.ins}]])

    def is_shared(i: int) -> bool:
        return readers[i] > 1 and specs[i].nbytes >= WORTH_A_CALL

    ops = [_computed_once(op) if op in TAKEN_FOR_LIGHT and is_shared(outs[0]) else op for op, _, _, outs in calls]
    return with_ops(block, ops, with_sines_once)


@functools.cache
def _computed_once(op: Op) -> Op:
    """An op that computes the same, and is not fused with anything."""

    def once(*x: Any, **arguments: Any) -> Any:
        return computed_once(functools.partial(op.forward, **arguments), *x)

    alone = op.with_forward(once, f"{op.name}_on_cpu")
    alone.fuses = ""
    return alone
