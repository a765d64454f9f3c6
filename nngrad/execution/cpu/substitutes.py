"""Other forwards in place of those of which XLA's compiler for CPUs makes little (the fact `on_cpu`): barriers that it
drops, what it would compute anew for each element that looks at it, and sums over leading axes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...graph import Op, Spec
from ...graph.block import Block, bodies_in
from ..calls import calls_of


def with_substitutes(block: Block) -> Block:
    """The block with them, also in bodies; itself where there are none."""
    if not any([op.on_cpu is not None for op in block.ops]):
        return block
    calls, specs = calls_of(block)
    steps = tuple([
        (_substitute(op, arguments, [specs[i] for i in ins]), tuple(map(_argument, arguments)), ins)
        for op, arguments, ins, _ in calls
    ])
    return block if steps == block.steps else block.with_steps(steps)


def _argument(argument: Any) -> Any:
    if isinstance(argument, Block):
        return with_substitutes(argument)
    return tuple(map(_argument, argument)) if argument.__class__ is tuple and bodies_in(argument) else argument


def _substitute(op: Op, arguments: tuple[Any, ...], specs: Sequence[Spec]) -> Op:
    forward = None if op.on_cpu is None else op.on_cpu(specs, op.named(arguments))
    return op if forward is None else _with_forward(op, forward)


@functools.cache
def _with_forward(op: Op, forward: Callable[..., Any]) -> Op:
    """The same op, of which all is known that is known of `op`, with another forward."""
    found: Op = object.__new__(op.__class__)
    found.__dict__.update(op.__dict__)
    found.name, found.forward, found.on_cpu, found.stands_for = f"{op.name}_on_cpu", forward, None, op
    return found
