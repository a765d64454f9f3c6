"""Passes: transformations of a block on its way to the compiler.

A graph says what is computed; how backends treat it, and how to help them, is known only here. A pass is a function
from blocks to blocks with the same results, apart from the order of the terms in a sum. The last passes may cut a block
into partitions. `lower.py` makes one function of the result.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..graph import Op
from ..graph.block import Block, Call
from ..graph.body_op import ControlOp
from ..graph.event import PassEvent
from ..graph.messages import left_out
from ..graph.options import Switched, build_options
from ..graph.traverse import operands_first
from .partitions import Partition, cut, hoist_from, hoisted_in, is_long
from .program import Program, platform_of


def with_bodies_together(block: Block) -> Block:
    """The block, and the bodies in it, with loops fused that share steps, and functions that make the same choice."""
    block = _with_choices_together(_with_loops_together(block.with_bodies_inline()))
    calls = block.calls
    read = {i for call in calls for i in call.ins}.union(block.outputs)
    free = itertools.count(sum([len(call.outs) for call in calls]))
    for n, (op, arguments, ins, outs) in enumerate(calls):
        if isinstance(op, ControlOp):
            arguments, places = op.showing(arguments, [i in read for i in outs])
            changed = Block.changed_in(arguments, with_bodies_together)
            if changed != arguments:
                new = [~next(free) for _ in op.result_specs((), changed)]
                for i, place in zip(outs, places, strict=False):
                    if i in read:
                        new[place] = i
                calls[n] = Call(op, changed, ins, tuple(new))
    return block if calls == block.calls else Block.of(block.inputs, calls, block.outputs)


def _with_choices_together(block: Block) -> Block:
    """The block with functions fused that make the same choice, unless one depends on another through a third."""
    calls = block.calls
    for choice, count in Counter(map(_choice, calls)).items():
        if choice is None or count < 2:
            continue
        groups: list[list[Call]] = []
        outs: set[int] = set()
        apart: set[int] = set()
        """What depends on `outs`, the outputs of the last group."""
        for call in calls:
            if _choice(call) != choice:
                apart.update(() if outs.isdisjoint(call.ins) and apart.isdisjoint(call.ins) else call.outs)
                continue
            if not groups or not apart.isdisjoint(call.ins):
                groups.append([])
                outs, apart = set(), set()
            groups[-1].append(call)
            outs.update(call.outs)
        fused: dict[int, Call] = {}
        for group in groups:
            op = group[0].op
            if len(group) > 1 and isinstance(op, ControlOp):
                arguments, ins = op.chosen_together(group)
                one = Call(op, arguments, ins, tuple([i for call in group for i in call.outs]))
                fused |= {id(call): one for call in group}
        calls = _in_order(calls, fused, {}) if fused else calls
    return block if calls == block.calls else Block.of(block.inputs, calls, block.outputs)


def _choice(call: Call) -> tuple[object, ...] | None:
    """What is equal for functions that make the same choice; None if there is none."""
    is_choice = isinstance(call.op, ControlOp) and call.op.is_choice
    return (call.op, call.ins[0], len(call.arguments[0])) if is_choice else None


def _with_loops_together(block: Block) -> Block:
    """The block with loops fused that share steps.

    Loops are considered together if the longest path from a leaf to each passes the same number of loops: then none of
    them depends on another.
    """
    calls = block.calls
    ranks: dict[int, int] = {}
    sides: dict[tuple[object, int], list[Call]] = {}
    for call in calls:
        rank = max([ranks.get(i, 0) for i in call.ins], default=0)
        if _is_loop(call.op):
            sides.setdefault((call.op, rank), []).append(call)
            rank += 1
        ranks.update(dict.fromkeys(call.outs, rank))
    instead: dict[int, int] = {}
    fused: dict[int, Call] = {}
    count = sum([len(call.outs) for call in calls])
    for side in sides.values():
        op = side[0].op
        assert isinstance(op, ControlOp)
        for group in op.sibling_fusion([(call.arguments, call.ins) for call in side]):
            outs = tuple([~(count + k) for k in range(len(op.result_specs((), group.arguments)))])
            count += len(outs)
            one = Call(op, group.arguments, group.ins, outs)
            for member, member_outs in zip(group.members, group.outs, strict=True):
                instead.update(zip(side[member].outs, [outs[k] for k in member_outs], strict=True))
                fused[id(side[member])] = one
    if not fused:
        return block
    return Block.of(block.inputs, _in_order(calls, fused, instead), [instead.get(i, i) for i in block.outputs])


def _is_loop(op: Op) -> bool:
    return isinstance(op, ControlOp) and op.is_loop


def _in_order(calls: Sequence[Call], fused: dict[int, Call], instead: dict[int, int]) -> list[Call]:
    """The calls, with some replaced by those in `fused`, in topological order."""
    current = [fused.get(id(call), call) for call in calls]
    renumbered = {
        id(call): call._replace(ins=tuple([instead.get(i, i) for i in call.ins])) for call in current
    }
    source = {out: call for call in renumbered.values() for out in call.outs}
    return operands_first(renumbered.values(), lambda call: [source[i] for i in call.ins if i in source])


class Pass(NamedTuple):
    """A pass, which does nothing if it does not find what it looks for."""

    name: str
    what: str
    """What it looks for."""
    run: Callable[[Block], Block | list[Partition]]
    may_apply: Callable[[Block], bool]
    """A cheap check that is False only for blocks that it would leave unchanged."""
    platform: str | None = None
    """JAX's name of the platform that it is for; None for all."""
    of_single_ops: Callable[[Op], bool] | None = None
    """Whether an op needs it even where it runs by itself, in debug mode; None: no op does."""


def _with(what: Callable[[Op], object]) -> Callable[[Block], bool]:
    """A check that an op of a block, or of a body in it, is what a pass looks for."""
    return lambda block: any(map(what, block.ops))


HOIST = Pass("hoist", "numbers that can be inputs", lambda block: hoist_from(block)[0], lambda block: True)
"""It runs before an executable is looked up, since programs that differ only in numbers share one. If a program is cut,
each partition has its own numbers hoisted."""

_INLINE = Pass("inline", "functions with a body to inline", Block.with_bodies_inline,
               _with(lambda op: isinstance(op, ControlOp)))  # fmt: skip
_JOIN_LOOPS = Pass("join_loops", "loops and choices to fuse", with_bodies_together,
                   _with(lambda op: isinstance(op, ControlOp)))
_PARTITION = Pass("partition", "block too large to compile at once", cut, is_long)

_before_partition: list[Pass] = []
_after_partition: list[Pass] = []


def register_pass(
    platform: str, name: str, run: Callable[[Block], Block], *, what: str, may_apply: Callable[[Block], bool],
    of_single_ops: Callable[[Op], bool] | None = None, if_uncut: bool = False,
) -> None:  # fmt: skip
    """Have a pass run on every program that is lowered for a platform, after those that are registered for it already.

    The pass takes a block, and returns one with the same results; the same one if it does not find what it looks for.
    Register before the first program is compiled: a program that has been lowered is not lowered again.

    Args:
        platform: JAX's name of the platform.
        name: Its name in `nn.show_passes` and `nn.passes`.
        run: The pass.
        what: What it looks for, for `nn.show_passes`.
        may_apply: A cheap check that is False only for blocks that it would leave unchanged.
        of_single_ops: Whether an op needs it even where it runs by itself, in debug mode; by default no op does.
        if_uncut: True if it only runs on blocks that were not cut into partitions.

    Raises:
        ValueError: There is a pass of this name.
    """
    if name in names_of_passes():
        raise ValueError(f"name: there is a pass {name!r} already")
    registered = _after_partition if if_uncut else _before_partition
    registered.append(Pass(name, what, run, may_apply, platform, of_single_ops))


def lowering_passes() -> tuple[Pass, ...]:
    """The passes in the order in which they run when a program is traced. Once a block is cut, the rest are skipped."""
    return (_INLINE, _JOIN_LOOPS, *_before_partition, _PARTITION, *_after_partition)


def all_passes() -> tuple[Pass, ...]:
    """`HOIST`, and the passes that run when a program is traced, in order."""
    return (HOIST, *lowering_passes())


def names_of_passes() -> frozenset[str]:
    """The names of all passes."""
    return frozenset([pass_.name for pass_ in all_passes()])


def platforms() -> tuple[str, ...]:
    """The platforms with passes of their own."""
    return tuple(dict.fromkeys([pass_.platform for pass_ in lowering_passes() if pass_.platform is not None]))


def needs_passes(op: Op) -> bool:
    """True if some platform has a pass for an op that runs by itself."""
    return any([pass_.of_single_ops is not None and pass_.of_single_ops(op) for pass_ in lowering_passes()])


def passes(*, without: Iterable[str] = ()) -> Switched:
    """Compile everything within this block without some passes, to find the one that makes a difference.

    Results differ by rounding. Only the innermost context counts.

    Args:
        without: Names of passes to leave out; `nn.show_passes(y)` lists them, with what each does to a graph.

    Raises:
        TypeError: `without` is a string.
        ValueError: A name in `without` is not that of a pass.
    """
    known = [pass_.name for pass_ in all_passes()]
    return Switched(without_passes=left_out(without, known, "pass", "passes", "nn.show_passes(y)"))


@dataclass(frozen=True)
class Lowered:
    """The result of the passes on a program."""

    program: Program
    """The program before it was cut, if it was."""
    partitions: list[Partition] | None = field(default=None, compare=False)
    """Its partitions, determined by the program; None if the compiler gets it as a whole."""


Stage = tuple[Pass, Block, Block | list[Partition]]
"""A pass, the block before it, and what it makes of that."""


def _stages(program: Program, platform: str | None, as_a_whole: bool) -> list[Stage]:
    """Each pass for a platform in turn; see `lowered`."""
    block, stages = program.block, []
    without = program.without | ({"partition"} if as_a_whole else set())
    for pass_ in lowering_passes():
        if pass_.platform in (None, platform):
            result = pass_.run(block) if pass_.name not in without and pass_.may_apply(block) else block
            stages.append((pass_, block, result))
            if isinstance(result, list):
                break
            block = result
    return stages


def _tell(program: Program, stages: Iterable[Stage]) -> None:
    """Tell of passes, if anything listens."""
    for pass_, before, result in stages if build_options().hears("passed") else ():
        partitions, after = ([part.block for part in result], before) if isinstance(result, list) else ([], result)
        hoisted = hoisted_in(after) - hoisted_in(before)
        event = PassEvent(pass_.name, pass_.what, pass_.name in program.without, before, after, hoisted, partitions)
        for hear in build_options().listeners["passed"]:
            hear(event)


def lowered(program: Program, platform: str | None, as_a_whole: bool = False) -> Lowered:
    """A program after the passes for a platform; they do not run on it again.

    Args:
        program: The program.
        platform: The platform; None for one without passes of its own.
        as_a_whole: Whether to leave it in one piece, whatever its length.
    """
    stages = _stages(program, platform, as_a_whole)
    _tell(program, stages)
    _, block, result = stages[-1]
    block, partitions = (block, result) if isinstance(result, list) else (result, None)
    if block is not program.block:
        program = program._replace(block=block, without=names_of_passes())
    return Lowered(program, partitions)


def prepared(program: Program, platform: str | None = None, as_a_whole: bool = True) -> Program:
    """A program as the compiler of a platform gets it, by default of the one that it runs on; nothing is compiled.

    Those who listen to "passed" hear first which numbers would become inputs.

    Args:
        program: The program.
        platform: JAX's name of the platform.
        as_a_whole: Whether to leave it in one piece, whatever its length.
    """
    platform = platform_of(program) if platform is None else platform
    if build_options().hears("passed"):
        is_cut = not as_a_whole and is_too_long(program) and isinstance(_stages(program, platform, False)[-1][2], list)
        hoists = not is_cut and HOIST.name not in program.without
        _tell(program, [(HOIST, program.block, HOIST.run(program.block) if hoists else program.block)])
    return lowered(program, platform, as_a_whole).program


def is_too_long(program: Program) -> bool:
    """True if a program may have to be partitioned: after the passes it may be shorter."""
    return "partition" not in program.without and is_long(program.block)
