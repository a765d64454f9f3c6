"""The steps of a block as calls, in which passes move and change them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ..graph import Op, Spec
from ..graph.block import Block, bodies_in
from ..graph.traverse import operands_first


class Call(NamedTuple):
    """A step, with the numbers of its outputs."""

    op: Op
    arguments: tuple[Any, ...]
    ins: tuple[int, ...]
    outs: tuple[int, ...]


def calls_of(block: Block) -> tuple[list[Call], dict[int, Spec]]:
    """The steps with the numbers of their outputs, and the specs of all values."""
    specs = dict(enumerate(block.inputs)) | {~k: spec for k, spec in enumerate(block.specs)}
    return [Call(*step, outs) for step, outs in zip(block.steps, block.outs, strict=True)], specs


def without_identities(block: Block, calls: Sequence[Call]) -> tuple[list[Call], tuple[int, ...]]:
    """The calls of a block that compute something, and the numbers of its outputs among their values: functions that
    only pass values on are left out."""
    found: list[Call] = []
    passed: dict[int, int] = {}
    for op, arguments, ins, outs in calls:
        taken = tuple([passed.get(i, i) for i in ins])
        if op.forwards_inputs:
            passed.update(zip(outs, taken, strict=False))
        else:
            found.append(Call(op, arguments, taken, outs))
    return found, tuple([passed.get(i, i) for i in block.outputs])


def read_calls(calls: Sequence[Call], outputs: Iterable[int]) -> list[Call]:
    """The calls that `outputs` depend on, in their order; compilers leave the others out."""
    read, found = set(outputs), []
    for call in reversed(calls):
        if not read.isdisjoint(call.outs):
            read.update(call.ins)
            found.append(call)
    return found[::-1]


def block_of(inputs: tuple[Spec, ...], calls: Sequence[Call], outputs: Sequence[int]) -> Block:
    """The block of some calls, in an order in which they can run.

    Args:
        inputs: Shape and dtype of each input; they have the numbers from 0 on.
        calls: The calls, however their values are numbered.
        outputs: The results, by these numbers.
    """
    made = [i for call in calls for i in call.outs]
    numbers = {i: ~n for n, i in enumerate(made)} | {i: i for i in range(len(inputs))}
    steps = tuple([(c.op, c.arguments, tuple([numbers[i] for i in c.ins])) for c in calls])
    return Block(inputs, steps, (), tuple([numbers[i] for i in outputs]))


def makers(calls: Sequence[Call]) -> dict[int, int]:
    """The places of the calls that make values."""
    return {i: n for n, call in enumerate(calls) for i in call.outs}


def late(calls: Sequence[Call], outputs: Sequence[int]) -> list[Call]:
    """Returns what `outputs` depend on, each call as late as its readers allow: depth first, the longest way first."""
    maker = makers(calls)
    depth: list[int] = []
    for call in calls:
        depth.append(1 + max([depth[maker[i]] for i in call.ins if i in maker], default=-1))

    def deepest_first(n: int) -> list[int]:
        return sorted({maker[i] for i in calls[n].ins if i in maker}, key=lambda m: (-depth[m], m))

    roots = sorted({maker[i] for i in outputs if i in maker}, key=lambda n: (depth[n], n))
    return [calls[n] for n in operands_first(roots, deepest_first)]


def with_ops(block: Block, ops: Iterable[Op], in_body: Callable[[Block], Block]) -> Block:
    """The block with other ops in its steps, and what `in_body` makes of the bodies among their arguments; itself where
    nothing is another."""

    def changed(argument: Any) -> Any:
        if isinstance(argument, Block):
            return in_body(argument)
        return tuple(map(changed, argument)) if argument.__class__ is tuple and bodies_in(argument) else argument

    given = zip(ops, block.steps, strict=True)
    steps = tuple([(op, tuple(map(changed, arguments)), ins) for op, (_, arguments, ins) in given])
    return block if steps == block.steps else block.with_steps(steps)


@functools.cache
def with_forward(op: Op, forward: Callable[..., Any]) -> Op:
    """The same op, of which all is known that is known of `op`, with another forward."""
    found: Op = object.__new__(op.__class__)
    found.__dict__.update(op.__dict__)
    found.name, found.forward, found.on_cpu, found.stands_for = f"{op.name}_on_cpu", forward, None, op
    return found
