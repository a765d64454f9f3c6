"""Programs that are too long for the compiler, cut into pieces that run one after another.

XLA makes one loop of elementwise functions that follow each other, however many they are. The time that it takes for
that grows with the square of their number, and past some thousands it fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import jax
from jax.experimental.xla_metadata import set_xla_metadata

from ..graph import Spec
from ..graph.body import Step
from .program import Call, Program, calls_of

MOST_FUSED = 2000
"""How many elementwise operations XLA may fuse. The gradient of a chain of `sin` takes one second to compile with
1,500 of them, four with 3,000, and fails with 4,500."""

PIECE = 64
"""How many operations a piece has. Of a chain whose values are all returned XLA computes each from the first one
again, so that the work of a piece may grow with the square of this."""

MOST_INPUTS = 128
"""How many inputs a sum has in a piece."""


class Piece(NamedTuple):
    """A part of a program. Values go by their numbers in the whole program."""

    program: Program
    """The part as a program of its own. Parts that do the same are equal, wherever they are."""
    takes: tuple[int, ...]
    """The values of its leaves."""
    gives: tuple[int, ...]
    """Its results."""
    done_with: tuple[int, ...]
    """The values that nothing needs after it."""


def _is_fused(call: Call) -> bool:
    """Whether XLA makes it a part of the loop that reads it."""
    return call.op.elementwise or call.op.broadcasts


def _weight(call: Call) -> int:
    """How many operations on two arrays it is."""
    return max(1, len(call.ins) - 1)


def is_long(program: Program) -> bool:
    """Whether XLA would make one loop of more than `MOST_FUSED` operations: of those between which it computes
    nothing that has to be in memory."""
    if sum([max(1, len(ins) - 1) for _, _, ins in program.steps]) <= MOST_FUSED:
        return False
    calls, _ = calls_of(program)
    height: dict[int, int] = {}
    fused = [0]
    for call in calls:
        level = max([height.get(i, 0) for i in call.ins], default=0)
        if _is_fused(call):
            fused[level] += _weight(call)
        else:
            level += 1
            if level == len(fused):
                fused.append(0)
        for i in call.outs:
            height[i] = level
    return max(fused) > MOST_FUSED


def cut(program: Program) -> list[Piece]:
    """The pieces of a program, in an order in which they can run."""
    calls, specs = calls_of(program)
    groups: list[list[Call]] = []
    weight = PIECE
    for call in _divided(calls, specs):
        if weight >= PIECE:
            groups.append([])
            weight = 0
        groups[-1].append(call)
        weight += _weight(call)
    last = {i: n for n, group in enumerate(groups) for call in group for i in call.ins}
    last |= dict.fromkeys(program.outputs, len(groups))
    return [_piece(group, n, last, specs, program) for n, group in enumerate(groups)]


def apart(arrays: Sequence[Any]) -> AbstractContextManager[Any]:
    """A context in which calls of jitted functions stay calls in the program that is made, if `arrays` are traced."""
    traced = any([isinstance(array, jax.core.Tracer) for array in arrays])
    return set_xla_metadata(inlineable="false") if traced else nullcontext()


def _divided(calls: list[Call], specs: dict[int, Spec]) -> list[Call]:
    """The calls, where what sums many arrays becomes several calls, each of which adds to the result of the one
    before. They add in the same order, so that the sum is the same to the bit."""
    divided: list[Call] = []
    number = min(specs, default=0)
    for call in calls:
        op, arguments, ins, outs = call
        if op.fold is None or len(ins) <= MOST_INPUTS or len({specs[i].dtype for i in ins}) > 1:
            divided.append(call)
            continue
        before: tuple[int, ...] = ()
        for start in range(0, len(ins), MOST_INPUTS):
            stop = min(start + MOST_INPUTS, len(ins))
            taken = (*before, *ins[start:stop])
            part = op.fold(arguments, start, stop, len(ins))
            if stop < len(ins):
                number -= 1
                before = (number,)
                (specs[number],) = op.result_specs(tuple([specs[i] for i in taken]), part)
            divided.append(Call(op, part, taken, outs if stop == len(ins) else before))
    return divided


def _piece(
    group: list[Call], place: int, last: dict[int, int], specs: dict[int, Spec], whole: Program
) -> Piece:
    """The piece of some calls; `last` says in which piece a value is read last."""
    made = [i for call in group for i in call.outs]
    numbers = {i: ~n for n, i in enumerate(made)}
    takes: list[int] = []
    steps: list[Step] = []
    for op, arguments, ins, _ in group:
        for i in ins:
            if i not in numbers:
                numbers[i] = len(takes)
                takes.append(i)
        steps.append((op, arguments, tuple([numbers[i] for i in ins])))
    gives = tuple([i for i in made if last.get(i, place) > place])
    program = Program(
        tuple([specs[i] for i in takes]), tuple(steps), tuple([numbers[i] for i in gives]), whole.device,
        mesh=whole.mesh,
    )
    return Piece(program, tuple(takes), gives, tuple([i for i in takes if last[i] == place]))
