"""Fuse independent loops into one that computes their common values once, and bodies into one.

The derivatives of a loop are loops that carry, besides their own tangents, the carries of lower orders. This module
finds equal carries: two are equal if they start from the same array and each step maps equal ones to equal ones.
Carries that start equal are first assumed equal, and separated as the steps show differences, until a fixed point.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...graph import Spec
from ...graph.block import Block
from ...graph.body_op import FusedFunctions, Numbers
from .loop import Loop


class LoopApplication(NamedTuple):
    """A loop, and the numbers of the values to which it is applied."""

    loop: Loop
    ins: Numbers


class MergedSteps:
    """The steps of several bodies, equal ones once."""

    def __init__(self) -> None:
        self.table: dict[Any, tuple[Any, ...]] = {}
        """The outputs of each distinct step, by op, static arguments, and inputs."""

    def added(self, body: Block, inputs: Sequence[Any]) -> list[Any]:
        """The values of a body on these inputs by number: inputs first, then the others reversed."""
        values: list[Any] = []
        for (op, arguments, numbers), specs in zip(body.steps, body.results, strict=True):
            key = op, arguments, tuple(body.picked(inputs, values, numbers))
            outputs = self.table.get(key)
            if outputs is None:
                outputs = self.table[key] = tuple([("value", len(self.table), k) for k in range(len(specs))])
            values.extend(outputs)
        return [*inputs, *reversed(values)]

    def numbers(self, inputs: Iterable[Any]) -> dict[Any, int]:
        """The number in `block` of each input and value."""
        values = itertools.chain.from_iterable(self.table.values())
        return {x: i for i, x in enumerate(inputs)} | {y: ~k for k, y in enumerate(values)}

    def block(self, inputs: Mapping[Any, Spec], outputs: Sequence[Any]) -> Block:
        """All steps as a block."""
        numbers = self.numbers(inputs)
        steps = tuple([(op, arguments, tuple([numbers[x] for x in ins])) for op, arguments, ins in self.table])
        return Block(tuple(inputs.values()), steps, (0,) * len(steps), tuple([numbers[x] for x in outputs]))


class _Values(MergedSteps):
    """The values of several loops' bodies, given which inputs are known to be equal."""

    def __init__(self, applications: Sequence[LoopApplication], classes: Sequence[Sequence[int]]) -> None:
        super().__init__()
        self.steps_of: list[set[Any]] = []
        """For each body, the keys of its steps, except steps that depend on fixed inputs only."""
        self.of: list[list[Any]] = []
        """For each body, its values by number: inputs first, then the others reversed, so that ~k indexes them."""
        for application, carried in zip(applications, classes, strict=True):
            loop, ins = application
            first, end = loop.fixed, loop.first_slice
            inputs = [
                ("carry", carried[i - first]) if first <= i < end else ("slice" if i >= end else "fixed", number)
                for i, number in enumerate(ins)
            ]
            values = self.added(loop.body, inputs)
            fixed = {x for x in inputs if x[0] == "fixed"}
            steps: set[Any] = set()
            for (op, arguments, numbers), outs in zip(loop.body.steps, loop.body.outs, strict=True):
                key = op, arguments, tuple([values[n] for n in numbers])
                if fixed.issuperset(key[2]):
                    fixed.update([values[n] for n in outs])
                else:
                    steps.add(key)
            self.of.append(values)
            self.steps_of.append(steps)


def _classes(applications: Sequence[LoopApplication]) -> tuple[list[list[int]], _Values]:
    """For each carry of each loop, the number of its class, equal for equal carries; and the resulting values."""
    keys: list[list[Any]] = [
        [(ins[loop.fixed + j], loop.body.spec(loop.fixed + j)) for j in range(loop.carries)]
        for loop, ins in applications
    ]
    count = 0
    while True:
        numbers: dict[Any, int] = {}
        classes = [[numbers.setdefault(key, len(numbers)) for key in of_loop] for of_loop in keys]
        values = _Values(applications, classes)
        if len(numbers) == count:
            return classes, values
        count = len(numbers)
        keys = [
            [(c, values.of[a][application.loop.body.outputs[j]]) for j, c in enumerate(classes[a])]
            for a, application in enumerate(applications)
        ]


def fused(applications: Sequence[tuple[tuple[Any, ...], Numbers]]) -> list[FusedFunctions]:
    """Fuse loops that do not depend on each other, where that saves work. Each application is a pair of static
    arguments and the numbers of the input values."""
    sides: dict[Any, list[int]] = {}
    loops = [LoopApplication(Loop(*arguments), ins) for arguments, ins in applications]
    cut: dict[Any, tuple[int, ...]] = {}
    """The segments, if any, of loops of equal length; those without segments can run in these too."""
    for loop, _ in loops:
        if loop.segments:
            cut.setdefault((loop.length, loop.reverse, loop.unroll), loop.segments)
    for i, (loop, _) in enumerate(loops):
        side = loop.length, loop.reverse, loop.unroll
        sides.setdefault((*side, loop.segments or cut.get(side, ())), []).append(i)
    return [
        _merged_loop(group, [loops[i] for i in group])
        for members in sides.values()
        for group in _sharing(members, [loops[i] for i in members])
    ]


def _sharing(members: Sequence[int], applications: Sequence[LoopApplication]) -> list[Numbers]:
    """The groups of `members` that share carries, or values computed at each step."""
    if len(members) < 2:
        return []
    classes, values = _classes(applications)
    group_of: dict[Any, list[int]] = {}
    for member, carried, steps in zip(members, classes, values.steps_of, strict=True):
        contents = [*carried, *steps]
        joined = [member]
        for group in {id(group_of[c]): group_of[c] for c in contents if c in group_of}.values():
            joined += group
        group_of |= {c: joined for c, group in group_of.items() if group[0] in joined} | dict.fromkeys(contents, joined)
    return [tuple(sorted(g)) for g in {id(group): group for group in group_of.values()}.values() if len(g) > 1]


def _merged_loop(members: Numbers, applications: Sequence[LoopApplication]) -> FusedFunctions:
    """One loop that computes all of these. It is only executed, never differentiated: gradients are taken before."""
    classes, values = _classes(applications)
    fixed: dict[int, Any] = {}
    slices: dict[int, Any] = {}
    starts: dict[int, int] = {}
    after: dict[int, Any] = {}
    stacked: dict[Any, None] = {}
    for (loop, ins), carried, known in zip(applications, classes, values.of, strict=True):
        fixed |= dict(zip(ins[: loop.fixed], loop.body.inputs, strict=False))
        slices |= dict(zip(ins[loop.first_slice :], loop.body.inputs[loop.first_slice :], strict=True))
        starts |= dict(zip(carried, ins[loop.fixed : loop.first_slice], strict=True))
        after |= {c: known[loop.body.outputs[j]] for j, c in enumerate(carried)}
        stacked |= dict.fromkeys([known[number] for number in loop.body.outputs[loop.carries :]])
    specs = {c: loop.body.spec(loop.fixed + j) for (loop, _), carried in zip(applications, classes, strict=True)
             for j, c in enumerate(carried)}  # fmt: skip
    inputs = {("fixed", i): spec for i, spec in fixed.items()} | {("carry", c): specs[c] for c in starts}
    inputs |= {("slice", i): spec for i, spec in slices.items()}
    body, numbers = values.block(inputs, [*after.values(), *stacked]), values.numbers(inputs)
    first = applications[0].loop
    segments = max([application.loop.segments for application in applications])
    one = Loop(body, len(fixed), len(starts), first.length, first.reverse, first.unroll, segments)
    finals, places = {c: i for i, c in enumerate(starts)}, one.places
    outs = [
        (
            *[finals[c] for c in carried], *[places[numbers[known[number]]] for number in loop.stacked],
            *[one.first_start + finals[c] for c in carried if loop.segments],
        )
        for (loop, _), carried, known in zip(applications, classes, values.of, strict=True)
    ]  # fmt: skip
    return FusedFunctions(members, tuple(one), (*fixed, *starts.values(), *slices), tuple(outs))
