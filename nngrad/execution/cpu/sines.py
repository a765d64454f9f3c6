"""Sines, cosines and tangents that are computed once.

XLA computes what it takes for light anew in each loop that reads it, and for each element of a larger array that it is
broadcast to. It takes these for as light as a product (the fact `taken_for_light`), and they take as long as dozens.
Other functions that take long, as `exp` and `tanh`, it keeps in memory by itself if several loops read them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from ...graph import Op, Spec
from ...graph.barrier import computed_once
from ...graph.block import Block
from ...graph.thresholds import WORTH_A_CALL
from ..calls import Call, calls_of, with_forward, with_ops

_NONE: frozenset[int] = frozenset()


def with_sines_once(block: Block) -> Block:
    """The block with barriers after such functions that would be computed several times, also in bodies; itself where
    there are none."""
    if not any([op.taken_for_light for op in block.ops]):
        return block
    calls, specs = calls_of(block)
    loops = _Loops(specs, block.outputs)
    first: dict[Any, int] = {}
    same = {  # equal ones are computed once
        out: first.setdefault((op, arguments, ins), out)
        for op, arguments, ins, (out, *_) in calls if op.taken_for_light
    }
    held: set[int] = set()
    for call in reversed(calls):
        out = call.outs[0]
        one, own = same.get(out), loops.of(call)
        if one is not None and one != out:
            loops.add(one, own)
        elif one is not None and len(own) > 1 and specs[out].nbytes >= WORTH_A_CALL:
            held.add(out)
            loops.keep(call.ins)
        else:
            loops.read(call, own)
    ops = [_computed_once(call.op) if same.get(call.outs[0]) in held else call.op for call in calls]
    return with_ops(block, ops, with_sines_once)


class _Loops:
    """In which loops values are computed, as far as the calls that read them are known."""

    def __init__(self, specs: Mapping[int, Spec], outputs: Iterable[int]) -> None:
        self._specs = specs
        self._found: dict[int, frozenset[int]] = {}
        """The results of the loops, for each value; of more than two, two of them."""
        self._in_memory: set[int] = set()
        self.keep(outputs)

    def of(self, call: Call) -> frozenset[int]:
        """The results of the loops in which a call is computed."""
        return _NONE.union(*[self._found.get(i, _NONE) for i in call.outs])

    def add(self, i: int, loops: frozenset[int]) -> None:
        """Value `i` is computed in these loops as well."""
        self._found[i] = frozenset(sorted(self._found.get(i, _NONE) | loops)[:2])

    def keep(self, values: Iterable[int]) -> None:
        """These values must be in memory, and so have loops of their own."""
        for i in values:
            self._in_memory.add(i)
            self.add(i, frozenset([i]))

    def read(self, call: Call, own: frozenset[int]) -> None:
        """What a call reads is computed in its loops, which are `own`, or must be in memory."""
        op, _, ins, (out, *_) = call
        sizes = {i: self._specs[i].size for i in (*ins, out)}
        if op.reduction and op.stands_for is None:
            own = frozenset([out])
        elif not (op.fuses or op.view):
            self.keep(ins)
            return
        elif out in self._in_memory and sum([sizes[i] == sizes[out] for i in {*ins}]) > 1:
            own = frozenset([out])  # XLA computes again what is in memory only if it is made of one array
        for i in ins:
            self.add(i, frozenset([i, out]) if sizes[out] > sizes[i] else own)  # for each element of a larger array


@functools.cache
def _computed_once(op: Op) -> Op:
    """An op that computes the same, and is fused with nothing."""

    def once(*x: Any) -> Any:
        return computed_once(op.forward, *x)

    found = with_forward(op, once)
    found.fuses = ""
    return found
