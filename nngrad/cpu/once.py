"""Calls that keep XLA's CPU compiler from recomputing values in every loop that reads them: sines, and sums along
recurrences.

**Sines, cosines and tangents.** XLA recomputes an operation that it considers cheap in each loop that reads it. It
considers these as cheap as a product (`TAKEN_FOR_LIGHT`), but they take as long as dozens. Other slow functions, such
as `exp` and `tanh`, it stores by itself if several loops read them.

**Sums along recurrences.** XLA fuses an elementwise function into all its readers, unless one of them also depends on
it through something that must be in memory. A sum of gradients in a long recurrence, such as that of an LSTM's cell,
escapes that rule: it reaches the sum of the step before through a product with a gate, and the program computes each
step's sum from those of *all* later steps. Arithmetic and compile time then grow with the square of the length.
"""


from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..extend import Block, Call, Op
from ..functions.barriers import computed_once
from .facts import TAKEN_FOR_LIGHT
from .substitutes import with_ops
from .thresholds import FAR, MOST_SOURCES, WORTH_A_CALL

_NONE: frozenset[int] = frozenset()


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
    """An op that computes the same, and is not fused with its readers. A sum is fused with what it adds, which would
    have to be stored for a call that adds."""

    def once(*x: Any, **arguments: Any) -> Any:
        if op.is_sum:
            return computed_once(lambda y: y, op.forward(*x, **arguments))
        return computed_once(functools.partial(op.forward, **arguments), *x)

    alone = op.with_forward(once, f"{op.name}_on_cpu")
    alone.fuses = ""
    return alone


def with_sums_once(block: Block) -> Block:
    """The block with sums along recurrences that XLA computes once; unchanged if there are none."""
    if sum([op.is_sum for op, _, _ in block.steps]) <= MOST_SOURCES:
        return block
    calls, specs = block.calls, block.spec_by_number
    recomputed = {i for i in _sums_of_many(calls) if specs[i].nbytes >= WORTH_A_CALL}
    if not recomputed:
        return block
    ops = [_computed_once(call.op) if call.outs[0] in recomputed else call.op for call in calls]
    return with_ops(block, ops, lambda body: body)


def _sums_of_many(calls: Sequence[Call]) -> set[int]:
    """The sums that several loops would compute, each from more than `MOST_SOURCES` arrays."""
    readers = Counter([i for call in calls for i in {*call.ins}])
    sources: dict[int, frozenset[int]] = {}
    """The arrays that the loop computing a value reads."""
    recomputed: set[int] = set()
    for n, call in enumerate(calls):
        if not (call.op.fuses or call.op.view):
            continue
        read = _NONE.union(*[sources.get(i) or frozenset([i]) for i in call.ins])
        if len(read) > MOST_SOURCES and call.op.is_sum and readers[call.outs[0]] > 1:
            if not _is_stored(calls, n):
                recomputed.update(call.outs)
            read = frozenset(call.outs)
        elif len(read) > 8 * MOST_SOURCES:
            read = frozenset(call.outs)  # beyond help, and followed no further
        sources.update(dict.fromkeys(call.outs, read))
    return recomputed


def _is_stored(calls: Sequence[Call], n: int) -> bool:
    """True if XLA computes a call once in any case: a loop that combines its result with others also reads something
    heavy computed from it."""
    (value,) = calls[n].outs
    near, far = {value}, set[int]()
    for call in calls[n + 1 : n + FAR]:
        through = not far.isdisjoint(call.ins)
        if through and any([i == value and _combines_at_once(call, k) for k, i in enumerate(call.ins)]):
            return True
        if through or not near.isdisjoint(call.ins):
            (far if through or call.op.heavy else near).update(call.outs)
    return False


def _combines_at_once(call: Call, operand: int) -> bool:
    """True if a call combines this input with others directly, without multiplying it by a number first."""
    op = call.op
    return not op.weights or abs(op.named(call.arguments)[op.weights][operand]) == 1
