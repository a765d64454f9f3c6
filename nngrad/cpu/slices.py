"""Slices of leaves that wait for what they are used with.

XLA's compiler for CPUs schedules first what can run first. The slices `x[0], x[1], ...` that the steps of an unrolled
recurrence read depend on nothing but a leaf. If a step needs its slice in memory, for a product or a join, all of them
are copied before the first step, which takes as much memory as `x`. A gradient's recomputation waits for what it starts
from, but the forward pass does not.
"""

from __future__ import annotations

from .. import functions as F
from ..extend import Block, Call, operands_first


def with_slices_in_turn(block: Block) -> Block:
    """The block with barriers before slices of leaves: each is taken after the deepest value that it, or what is
    computed from it alone, is first combined with. Unchanged if none has to wait."""
    calls = block.calls
    tokens = _tokens(calls)
    if not tokens:
        return block
    number = min([~len(calls), *[call.outs[-1] for call in calls]])
    changed: list[Call] = []
    for n, call in enumerate(calls):
        if n in tokens:
            number -= 1
            changed.append(Call(F.optimization_barrier, (), (*call.ins, tokens[n]), (number,)))
            call = call._replace(ins=(number,))
        changed.append(call)
    maker = {i: call for call in changed for i in call.outs}
    ordered = operands_first(changed, lambda call: [maker[i] for i in call.ins if i in maker])
    return Block.of(block.inputs, ordered, block.outputs)


def _tokens(calls: list[Call]) -> dict[int, int]:
    """For the slices that are to wait, the values that they wait for; by the places of the calls."""
    early: set[int] = set()
    """Values computed without slices."""
    origin: dict[int, int] = {}
    """The one slice that a value is computed from, beside early ones."""
    depth: dict[int, int] = {}
    """How many values on the way from the slices to one have to be in memory."""
    first: dict[int, int | None] = {}
    """What the first value that a slice is combined with makes it wait for."""
    for n, (op, _, ins, outs) in enumerate(calls):
        late = {i for i in ins if i < 0} - early
        slices = {origin[i] for i in late if i in origin}
        depth.update(dict.fromkeys(outs, max([depth.get(i, 0) for i in late], default=0) + (not op.fuses)))
        if not late and op.slice_keys is not None and len(outs) == len(ins) == 1:
            origin[outs[0]] = n
        elif not late:
            early.update(outs)
        elif len(slices) == 1 and late <= origin.keys():
            origin.update(dict.fromkeys(outs, *slices))
        for i in late & origin.keys() if outs[0] not in origin else ():
            token = max([j for j in late if origin.get(j) != origin[i]], key=lambda j: (depth[j], -j))
            first.setdefault(origin[i], token if depth[token] > depth[i] else None)
    return {n: token for n, token in first.items() if token is not None}
