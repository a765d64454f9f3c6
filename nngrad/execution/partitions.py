"""Prepare blocks for executables: hoist numbers, and partition blocks that are too long for the compiler.

**Hoisted literals.** Programs that differ only in numbers share an executable, which takes the numbers as an input. A
number is part of a graph's structure: zeros and ones vanish, and powers are multiplied out. But most numbers need not
be known to the executable, so a changing one, such as lam in `lam * penalty` when lam is annealed, compiles nothing: 0,
1, -1, and numbers that an op treats as a special case stay in the program; all others are inputs. So are numbers in
bodies, unless there are many, and the integers of `y[i]`, unless there are many or the axis is short.

**Partitions** are compiled separately, equal ones once, and run one after another. That is necessary for long programs:
XLA fuses successive elementwise functions into one loop, however many they are. The time for this grows with the square
of their number, and past some thousands it fails. XLA also compares joined arrays, and parts that are results, pair by
pair, and makes a kernel of every part.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from ctypes import c_float
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata

from ..graph import Op, Spec
from ..graph.block import Block, Call, RolledLoop, Step
from ..graph.body_op import ControlOp
from ..graph.spec import spec_of
from ..graph.thresholds import (
    FEW_INDICES,
    LONG_AXIS,
    MOST_CALLS,
    MOST_DERIVED,
    MOST_FUSED,
    MOST_IN_BODIES,
    MOST_OPERANDS,
    MOST_PARTS,
    MOST_PLACES,
)
from .program import HoistedLiteral, Program, in_one

Numbers = tuple[float, ...]

_literal_at = functools.cache(HoistedLiteral)  # identical objects are quick to compare

_SPECIAL = (0, 1, -1)
"""Numbers that save computation."""


def hoist_from(block: Block) -> tuple[Block, Numbers]:
    """The block with its numbers hoisted, and the numbers. Equal numbers share a place, so that equal functions stay
    equal. User code takes no numbers as arguments; and in integer arithmetic, the result's dtype depends on the number.
    """
    if block.opaque or not any([op.numbers or op.by_index for op in block.ops]):
        return block, ()
    calls, specs = block.calls, block.spec_by_number
    hoisting = _Hoisting({}, {})
    steps = hoisting.steps(calls, specs, _free_indices(calls, specs))
    within = _Hoisting({**hoisting.numbers}, {**hoisting.places})
    again = within.in_bodies(steps)
    if len(within.numbers) <= len(hoisting.numbers) + MOST_IN_BODIES:
        hoisting, steps = within, again
    return block.with_steps(steps) if hoisting.numbers else block, tuple(hoisting.numbers.values())


class _Hoisting(NamedTuple):
    """Hoists numbers, and enters each in `numbers` and its place among them in `places`, by how it is written."""

    numbers: dict[str, float]
    places: dict[str, int]

    def steps(self, calls: Iterable[Call], specs: Mapping[int, Spec], indices: frozenset[int]) -> tuple[Step, ...]:
        """The calls as steps, without the numbers and without these indices in keys."""
        steps: list[Step] = []
        for op, arguments, ins, outs in calls:
            if op.numbers and all([specs[i].differentiable for i in (*ins, *outs)]):
                named = zip(op.argument_names, arguments, strict=True)
                arguments = tuple([self._number(op, value) if name in op.numbers else value for name, value in named])
            elif op.by_index is not None:
                key, *others = arguments
                free = tuple([self._literal(i, f"[{i}]") if _is_index(i) and i in indices else i for i in key])
                if free != key:
                    op, arguments = _by_index(op), (free, *others)
            steps.append((op, arguments, ins))
        return tuple(steps)

    def in_bodies(self, steps: Iterable[Step]) -> tuple[Step, ...]:
        """The steps with the numbers hoisted from their bodies, and from the bodies in these."""
        return tuple([
            (op, Block.changed_in(arguments, self._in_body) if isinstance(op, ControlOp) else arguments, ins)
            for op, arguments, ins in steps
        ])

    def _in_body(self, body: Block) -> Block:
        steps = self.in_bodies(self.steps(body.calls, body.spec_by_number, frozenset()))
        return body.with_steps(steps) if steps != body.steps else body

    def _number(self, op: Op, number: Any) -> Any:
        if isinstance(number, tuple):
            return tuple([self._number(op, item) for item in number])
        if number in _SPECIAL or (op.own_way is not None and op.own_way(number)):
            return number
        return self._literal(number, float.hex(float(number)))

    def _literal(self, number: Any, written: str) -> HoistedLiteral:
        self.numbers[written] = float(number)
        return _literal_at(self.places.setdefault(written, len(self.places)))


def _free_indices(calls: Sequence[Call], specs: dict[int, Spec]) -> frozenset[int]:
    """The integer indices, as in `y[i]`, that are to be inputs; none if there are many, as in an unrolled recurrence,
    which is to be found. The first and the last row, but not element, often have a role of their own."""
    indices: set[int] = set()
    for op, arguments, ins, _ in calls:
        if op.by_index is not None:
            named = op.named(arguments)
            entries = [entry for entry in named["key"] if entry is not None]
            margin = not all(map(_is_index, entries))
            for i, n in zip(entries, named.get("shape", specs[ins[0]].shape), strict=True):
                if _is_index(i) and LONG_AXIS <= n <= MOST_PLACES and margin <= i < n - margin:
                    indices.add(i)
    return frozenset(indices) if len(indices) <= FEW_INDICES else frozenset()


def _is_index(entry: Any) -> bool:
    return entry.__class__ is int


@functools.cache
def _by_index(op: Op) -> Op:
    """An op that computes the same, and takes indices as arrays. Nothing else can read its key."""
    assert op.by_index is not None
    twin = op.with_forward(op.by_index, f"{op.name}_by_index")
    twin.slice_keys = twin.update_keys = twin.shape = None
    return twin


def hoisted_in(block: Block) -> int:
    """How many numbers of a block are inputs of its executable."""
    places: set[int] = set()
    literals_replaced(block.steps, places.add)
    return len(places)


@functools.lru_cache(MOST_DERIVED)
def has_literals(body: Block) -> bool:
    """True if numbers have been hoisted from a body."""
    return hoisted_in(body) > 0


class Hoisted(NamedTuple):
    """A program with its numbers hoisted, and these numbers."""

    program: Program
    numbers: np.ndarray[Any, Any] | None
    """The numbers in the form an executable takes them, before the arrays of the leaves; None if there are none."""

    @property
    def takes(self) -> tuple[Spec, ...]:
        """Shapes and dtypes of an executable's arguments."""
        if self.numbers is None:
            return self.program.block.inputs
        return spec_of(self.numbers.shape, self.numbers.dtype), *self.program.block.inputs


def hoisted(program: Program) -> Hoisted:
    """The form that a program shares with all programs that differ from it only in numbers, and its own numbers."""
    block, numbers = hoist_from(program.block)
    return Hoisted(program._replace(block=block), as_array(numbers, block.needs_x64))


def as_array(numbers: Sequence[float], needs_x64: bool) -> np.ndarray[Any, Any] | None:
    """Numbers as an executable takes them; None if there are none."""
    if not numbers:
        return None
    if needs_x64:
        return np.array(numbers, np.float64)
    # C casts too large numbers to infinity without NumPy's warning, as for numbers inside the program.
    return np.array([c_float(number).value for number in numbers], np.float32)


def with_literals(program: Program, numbers: Sequence[Any]) -> Program:
    """A program with numbers, or their tracers, in place of its hoisted literals."""
    return program._replace(block=program.block.with_steps(literals_replaced(program.block.steps, numbers.__getitem__)))


def literals_replaced(steps: Iterable[Step], by: Callable[[int], Any]) -> tuple[Step, ...]:
    """Steps with each hoisted literal replaced by the result of `by` for its place."""

    def in_place(argument: Any) -> Any:
        if argument.__class__ is HoistedLiteral:
            return by(argument.place)
        if argument.__class__ is tuple:
            return tuple(map(in_place, argument))
        if argument.__class__ is Block and has_literals(argument):
            return argument.with_steps(literals_replaced(argument.steps, by))
        if isinstance(argument, RolledLoop):
            return replace(argument, steps=literals_replaced(argument.steps, by))
        return argument

    return tuple([(op, in_place(arguments), ins) for op, arguments, ins in steps])


def _renumbered(block: Block) -> tuple[Block, tuple[int, ...]]:
    """A part of a block with its hoisted literals renumbered from 0, and their places in the whole block."""
    places: dict[int, int] = {}
    steps = literals_replaced(block.steps, lambda place: _literal_at(places.setdefault(place, len(places))))
    return block.with_steps(steps) if places else block, tuple(places)


def taking_literals(program: Program) -> Callable[..., tuple[Any, ...]]:
    """A program as a function of an array of its hoisted literals and the arrays of the leaves."""

    def run(numbers: Any, *arrays: Any) -> tuple[Any, ...]:
        literals = [lax.index_in_dim(numbers, i, keepdims=False) for i in range(numbers.shape[0])]
        return in_one(with_literals(program, literals))(*arrays)

    return run


# ---------------------------------------------------------------- partitions


class Partition(NamedTuple):
    """A part of a block. Values have their numbers in the whole block."""

    block: Block
    """The part as a block of its own. Parts that do the same are equal, wherever they are."""
    takes: tuple[int, ...]
    """The values of its leaves."""
    gives: tuple[int, ...]
    """Its results."""
    done_with: tuple[int, ...]
    """The values that are not needed after it."""
    numbers: np.ndarray[Any, Any] | None
    """Its numbers, if they are hoisted, so that partitions which differ only in them are equal."""


def _weight(call: Call) -> int:
    """The number of operations on two arrays."""
    return max(1, len(call.ins) - 1)


def is_long(block: Block) -> bool:
    """True if XLA would fuse more than `MOST_FUSED` operations into one loop, with nothing between them that has to be
    in memory; or join leaves, and return parts of arrays, more than `MOST_PARTS` in total."""
    if sum([max(1, len(ins) - 1) for _, _, ins in block.steps]) + len(block.outputs) <= MOST_PARTS:
        return False
    calls = block.calls
    results = set(block.outputs)
    joined = sum([i >= 0 for call in calls if call.op.joined_by is not None for i in call.ins])
    parts = sum([len(results.intersection(call.outs)) for call in calls if call.op.slice_keys is not None])
    if joined + parts > MOST_PARTS:
        return True
    height: dict[int, int] = {}
    fused = [0]
    for call in calls:
        level = max([height.get(i, 0) for i in call.ins], default=0)
        if call.op.elementwise or call.op.broadcasts:  # XLA fuses it into the loop that reads it
            fused[level] += _weight(call)
        else:
            level += 1
            if level == len(fused):
                fused.append(0)
        for i in call.outs:
            height[i] = level
    return max(fused) > MOST_FUSED


def cut(block: Block) -> list[Partition]:
    """The partitions of a block, in topological order, as long as possible."""
    block, numbers = hoist_from(block)
    specs = block.spec_by_number
    calls = _divided(Call.late(block.calls, block.outputs), specs)
    ends = _ends(list(map(_weight, calls)))
    groups = [calls[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    last = {i: n for n, group in enumerate(groups) for call in group for i in call.ins}
    last |= dict.fromkeys(block.outputs, len(groups))
    return [_partition(group, n, last, specs, numbers) for n, group in enumerate(groups)]


def _ends(weights: Sequence[int]) -> list[int]:
    """The ends of partitions of `MOST_CALLS` operations."""
    ends, total = [], 0
    for end, weight in enumerate(weights, 1):
        total += weight
        if total >= MOST_CALLS or end == len(weights):
            ends.append(end)
            total = 0
    return ends


def apart(arrays: Sequence[Any]) -> AbstractContextManager[Any]:
    """A context in which calls of jitted functions are not inlined by XLA, if `arrays` are traced."""
    traced = any([isinstance(array, jax.core.Tracer) for array in arrays])
    return set_xla_metadata(inlineable="false") if traced else nullcontext()


def _divided(calls: list[Call], specs: dict[int, Spec]) -> list[Call]:
    """Divide calls that take many arrays into several.

    A sum adds to the previous call's result, in the same order, so that it is the same bit for bit; joined arrays are
    joined in stretches.
    """
    divided: list[Call] = []
    numbers = itertools.count(min(specs, default=0) - 1, -1)

    def made(op: Op, arguments: tuple[Any, ...], ins: tuple[int, ...]) -> int:
        number = next(numbers)
        (specs[number],) = op.result_specs(tuple([specs[i] for i in ins]), arguments)
        divided.append(Call(op, arguments, ins, (number,)))
        return number

    for op, arguments, ins, outs in calls:
        divisible = len(ins) > MOST_OPERANDS and len({specs[i].dtype for i in ins}) == 1
        if divisible and op.fold is not None:
            before: tuple[int, ...] = ()
            for start in range(0, len(ins) - MOST_OPERANDS, MOST_OPERANDS):
                stop = start + MOST_OPERANDS
                before = (made(op, op.fold(arguments, start, stop, len(ins)), (*before, *ins[start:stop])),)
            arguments, ins = op.fold(arguments, stop, len(ins), len(ins)), (*before, *ins[stop:])
        while divisible and op.joined_by is not None and len(ins) > MOST_OPERANDS:
            stretches = [ins[start : start + MOST_OPERANDS] for start in range(0, len(ins), MOST_OPERANDS)]
            ins = tuple([made(op, arguments, stretch) for stretch in stretches])
            op = op.joined_by()
        divided.append(Call(op, arguments, ins, outs))
    return divided


def _partition(
    group: Sequence[Call], place: int, last: dict[int, int], specs: dict[int, Spec], numbers: Numbers
) -> Partition:
    """The partition of some calls; `last` gives the partition in which each value is last read."""
    results = dict.fromkeys([i for call in group for i in call.outs])
    takes = tuple([i for i in dict.fromkeys([i for call in group for i in call.ins]) if i not in results])
    places = {i: n for n, i in enumerate(takes)}
    gives = tuple([i for i in results if last.get(i, place) > place])
    calls = [call._replace(ins=tuple([places.get(i, i) for i in call.ins])) for call in group]
    block, literal_places = _renumbered(Block.of(tuple([specs[i] for i in takes]), calls, gives))
    return Partition(
        block, takes, gives, tuple([i for i in takes if last[i] == place]),
        as_array([numbers[i] for i in literal_places], block.needs_x64),
    )  # fmt: skip
