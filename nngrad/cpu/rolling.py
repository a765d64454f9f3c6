"""A pass that rolls unrolled recurrences into loops, so that the compiler gets each step once.

XLA compiles what it is given: of 200 steps of a recurrent network, 200 times the same. The gradients of such a program
are also recurrences, forward and backward, and each becomes a loop of its own (`repetitions.py` finds them). Nothing is
copied at the edges. A loop reads the slices of an array, and the stacks of earlier loops, where they are. Values wanted
only of the last step are carried, and values read by other loops are stacked. A sum over the steps, such as a weight's
gradient, is accumulated. Parts that are added up in one array, such as the gradient of a sliced array, are put there at
once.

It pays if steps share the arrays they compute with. Layers with their own weights would have to be stacked, and their
gradients unstacked; they stay as they are. So do programs that recompute values to save memory: a loop would stack the
values of all steps where those of a few are read. An LSTM of 64 steps then took 13 MB instead of 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from ..extend import (
    Block,
    Call,
    Spec,
    operands_first,
)
from .listing import Listing, is_long_sum
from .repeated import Added, Outside, RolledSteps, loop_of_steps, part_of
from .repetitions import (
    AlongSteps,
    Before,
    Repetition,
    Same,
    Slices,
    StepValue,
    regular_stretches,
    repetitions_of,
)
from .thresholds import LEAST, LEAST_SAVED, LEAST_STEPS, MOST_AT_THE_EDGES, MOST_LEFT


def with_recurrences_rolled(block: Block) -> Block:
    """The block with unrolled recurrences rolled into loops; unchanged if there are none."""
    specs = block.spec_by_number
    calls, outputs = block.without_identities()
    rolled = _rolled_in(block, Listing(calls, specs, outputs))
    if len(rolled.steps) > MOST_LEFT * (rolled.functions_to_compile - len(rolled.steps)):
        # In the block's order, unrelated calls may stand between the calls of a step, and steps of one recurrence
        # between those of another.
        later = _rolled_in(block, Listing(Call.late(calls, outputs), specs, outputs))
        return min(rolled, later, key=attrgetter("functions_to_compile"))
    return rolled


def _rolled_in(block: Block, listing: Listing) -> Block:
    """The block with the loops of a listing of its calls."""
    stretches = regular_stretches(listing)
    while stretches:
        repetitions = repetitions_of(listing, stretches)
        writer = _Writer(block.inputs, listing, list(repetitions.values()))
        costly = writer.costly()
        if not costly and repetitions:
            return writer.rewritten()
        stretches = [stretch for stretch, repetition in repetitions.items() if repetition not in costly]
    return block


class _Demand:
    """The values of a repetition that are wanted outside its own steps.

    Args:
        repetition: The repetition.
    """

    def __init__(self, repetition: Repetition) -> None:
        self.repetition = repetition
        self.stacks: dict[Before, None] = {}
        """Values of all steps that other loops read."""
        self.singles: dict[StepValue, set[int]] = {}
        """The steps whose values are read individually."""
        self.totals: dict[Added, None] = {}
        """Sums over steps."""

    def division(self) -> tuple[list[StepValue], list[Before]]:
        """The values of which only the last is read, and the values that are stacked."""
        others = {place: steps for place, steps in self.singles.items() if Before(place, ()) not in self.stacks}
        last = [place for place, steps in others.items() if steps == {self.repetition.length - 1}]
        return last, [*self.stacks, *[Before(place, ()) for place in others if place not in last]]


class _Writer:
    """Rewrites a block with loops.

    Args:
        inputs: Shape and dtype of each of its inputs.
        listing: Its calls.
        repetitions: The repetitions that become loops.
    """

    def __init__(self, inputs: tuple[Spec, ...], listing: Listing, repetitions: Sequence[Repetition]) -> None:
        self._inputs, self._listing, self._repetitions = inputs, listing, repetitions
        self._free = min(listing.specs, default=0)
        self._owner: dict[int, int] = {}
        for index, repetition in enumerate(repetitions):
            self._owner.update(dict.fromkeys(range(repetition.start, repetition.end), index))
        self._demands = [_Demand(repetition) for repetition in repetitions]
        self._wanted: set[int] = set()
        """The values that are read individually."""
        self._divided: dict[int, tuple[list[int], list[tuple[int, Added, int]]]] = {}
        """For long sums: the operands that stay, and totals with the index of one of their terms."""
        at = {repetition.start: index for index, repetition in enumerate(repetitions)}
        for n, call in enumerate(listing.calls):
            if n not in self._owner:
                self._ask_for_operands(call)
        for repetition in repetitions:
            for i in _read_before(repetition):
                self._ask_for(i)
            for read in {read for reads in repetition.reads for read in reads}:
                if isinstance(read, AlongSteps):
                    self._demands[at[read.repetition]].stacks[read.read] = None
        for i in listing.outputs:
            self._ask_for(i)

    # ---------------------------------------------------------------- demands

    def _owned(self, i: int) -> tuple[int, int, StepValue] | None:
        """The repetition, step and place of a value; None if it is in no repetition."""
        n, output = self._listing.position.get(i, (-1, 0))
        index = self._owner.get(n)
        if index is None:
            return None
        step, call = self._repetitions[index].where(n)
        return index, step, StepValue(call, output)

    def _ask_for(self, i: int) -> None:
        """Record that a value is read individually, and the array that it is taken from."""
        while i not in self._wanted:
            self._wanted.add(i)
            owned = self._owned(i)
            if owned is not None:
                index, step, place = owned
                self._demands[index].singles.setdefault(place, set()).add(step)
            elif self._listing.whole(i) != i:
                i = self._listing.maker[i].ins[0]

    def _ask_for_operands(self, call: Call) -> None:
        for k in self._ask_for_totals(call) if is_long_sum(call) else range(len(call.ins)):
            self._ask_for(call.ins[k])

    def _ask_for_totals(self, call: Call) -> list[int]:
        """Let loops add up terms of a sum; returns the terms that remain."""
        groups: dict[Any, dict[int, tuple[int, int]]] = {}
        weights = call.op.named(call.arguments)[call.op.weights] if call.op.weights else (1,) * len(call.ins)
        (result,) = call.outs
        for k, i in enumerate(call.ins):
            window, at = self._listing.put.get(i, (None, 0))
            owned = self._owned(i if window is None else self._listing.maker[i].ins[0])
            if owned is not None and self._listing.specs[i] is self._listing.specs[result]:
                index, step, place = owned
                groups.setdefault((index, place, window, weights[k]), {})[step] = (k, at)
        left = set(range(len(call.ins)))
        totals = []
        for (index, place, window, _), terms in groups.items():
            first, end = min(terms), max(terms) + 1
            if len(terms) < LEAST or end - first != len(terms):
                continue
            stride = 0 if window is None else terms[first + 1][1] - terms[first][1]
            even = all([at == terms[first][1] + (t - first) * stride for t, (_, at) in terms.items()])
            if not even or not left.issuperset([k for k, _ in terms.values()]):
                continue
            left.difference_update([k for k, _ in terms.values()])
            added = Added(place, window, first, end, terms[first][1] - first * stride, stride)
            self._demands[index].totals[added] = None
            totals.append((index, added, terms[first][0]))
        self._divided[result] = sorted(left), totals
        return sorted(left)

    def costly(self) -> list[Repetition]:
        """The repetitions that are better left unrolled."""
        return [demand.repetition for demand in self._demands if not self._pays(demand)]

    def _pays(self, demand: _Demand) -> bool:
        """True where a loop leaves less to compile, and copies little."""
        repetition = demand.repetition
        saved = (repetition.length - 1) * repetition.period
        at_edges = sum([len(steps) for steps in demand.singles.values()])
        if repetition.length < LEAST_STEPS:
            return False
        return saved - at_edges >= LEAST_SAVED and at_edges * MOST_AT_THE_EDGES <= repetition.length * repetition.period

    # ---------------------------------------------------------------- the block

    def _number(self) -> int:
        self._free -= 1
        return self._free

    def rewritten(self) -> Block:
        """The block with loops."""
        self._calls: list[Call] = []
        self._instead: dict[int, int] = {}
        self._stacks: dict[tuple[int, Before], int] = {}
        self._totals: dict[tuple[int, Added], int] = {}
        for index, demand in enumerate(self._demands):
            self._write_loop(index, demand)
        others = [c for n, c in enumerate(self._listing.calls) if n not in self._owner]
        others += [self._listing.maker[i] for i in self._wanted if self._listing.whole(i) != i]
        for call in others:
            self._calls.append(self._with_totals(call))
        calls = [c._replace(ins=tuple([self._instead.get(i, i) for i in c.ins])) for c in self._calls]
        maker = {i: call for call in calls for i in call.outs}
        outputs = [self._instead.get(i, i) for i in self._listing.outputs]
        roots = {id(maker[i]): maker[i] for i in outputs if i in maker}
        ordered = operands_first(roots.values(), lambda call: [maker[i] for i in call.ins if i in maker])
        return Block.of(self._inputs, ordered, outputs)

    def _with_totals(self, call: Call) -> Call:
        """A sum with totals in place of the terms that loops add up."""
        left, totals = self._divided.get(call.outs[0], ([], []))
        if not totals:
            return call
        numbers = [call.ins[k] for k in left] + [self._totals[index, key] for index, key, _ in totals]
        arguments = call.arguments
        if call.op.weights:
            at = call.op.argument_names.index(call.op.weights)
            weights = tuple([arguments[at][k] for k in [*left, *[k for _, _, k in totals]]])
            arguments = (*arguments[:at], weights, *arguments[at + 1 :])
        return call._replace(arguments=arguments, ins=tuple(numbers))

    def _write_loop(self, index: int, demand: _Demand) -> None:
        """Append the call of a loop, and those that unstack its values."""
        steps = RolledSteps(self._listing, demand.repetition)
        last, stacked = demand.division()
        totals = [steps.total(added) for added in demand.totals]
        loop = steps.loop(last, totals, stacked)
        ins = [*steps.same, *[before.starts[0] for before in steps.handed], *map(self._source, steps.outside)]
        outs = [self._number() for _ in range(len(loop.after) + len(loop.specs) + len(totals))]
        self._calls.append(Call(loop_of_steps, (loop,), tuple(ins), tuple(outs)))
        results = iter(outs[len(loop.after) :])
        for place in last:
            self._instead[steps.in_block(place, loop.length - 1)] = next(results)
        for added in demand.totals:
            self._totals[index, added] = next(results)
        for before in stacked:
            stack = self._stacks[demand.repetition.start, before] = next(results)
            for step in () if before.starts else demand.singles.get(before.place, ()):
                i = steps.in_block(before.place, step)
                self._instead[i] = self._number()
                self._calls.append(Call(part_of, ((step,),), (stack,), (self._instead[i],)))

    def _source(self, read: Outside) -> int:
        """The number of the array whose parts are read."""
        if isinstance(read, AlongSteps):
            return self._stacks[read.repetition, read.read]
        number: int = read.window.source
        return number


def _read_before(repetition: Repetition) -> Iterable[int]:
    """The outside values that a repetition reads individually."""
    for read in {read: None for reads in repetition.reads for read in reads}:
        if isinstance(read, Same):
            yield read.number
        elif isinstance(read, Before):
            yield from read.starts
        elif isinstance(read, Slices):
            yield read.window.source
