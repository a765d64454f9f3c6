"""Block: a closed graph as an immutable value.

A Block has inputs and outputs, and does not refer to the graph that it was built from. Blocks of equal structure are
equal, so derived results are computed once for all of them. An op can have blocks among its static arguments: the body
of a loop or branch is a function of Variables, run once on placeholders, and the graph that it builds is closed. A
request to `grad` and the graph that it emits are also blocks.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from .body_op import dependence, in_place_of
from .engine import engine
from .function import Function, next_serials
from .messages import SourceLocation
from .ndarray import NdArray
from .op import Op, arguments_need_x64
from .options import build_options
from .origins import GradientsTaken, Origins, make
from .placement import Processes, groups_of
from .spec import Spec
from .traverse import operands_first
from .variable import Variable, leaf_of

T = TypeVar("T")

Step = tuple[Op, tuple[Any, ...], tuple[int, ...]]
"""Op, static arguments, and the value numbers of the inputs."""


def run_steps(steps: Iterable[Step], arrays: Sequence[Any]) -> list[Any]:
    """Run steps, and return their values: input i has the number i, and the k-th value of all steps the number ~k."""
    values: list[Any] = []
    truths: dict[int, Callable[[], Any]] = {}
    for op, arguments, ins in steps:
        inputs = [arrays[i] if i >= 0 else values[~i] for i in ins]
        if op.predicate is not None:
            # XLA cannot simplify a number that is made of a bool and then compared with 0.
            truths[~len(values)] = functools.partial(op.bind(arguments, op.predicate), *inputs)
        elif op.selects and ins[0] in truths:
            inputs[0] = truths[ins[0]]()
        out = op.bind(arguments)(*inputs)
        if op.multiple_results:
            values.extend(out)
        else:
            values.append(out)
    return values


class Call(NamedTuple):
    """A step, with the numbers of its outputs."""

    op: Op
    arguments: tuple[Any, ...]
    ins: tuple[int, ...]
    outs: tuple[int, ...]

    @property
    def opaque(self) -> bool:
        """True with user code among its arguments: it is equal to no other call."""
        return has_opaque(self.arguments)

    @staticmethod
    def late(calls: Sequence[Call], outputs: Sequence[int]) -> list[Call]:
        """The calls that `outputs` depend on, each as late as its readers allow: depth first, the longest path first.
        """
        maker = {i: n for n, call in enumerate(calls) for i in call.outs}
        depth: list[int] = []
        for call in calls:
            depth.append(1 + max([depth[maker[i]] for i in call.ins if i in maker], default=-1))

        def deepest_first(n: int) -> list[int]:
            return sorted({maker[i] for i in calls[n].ins if i in maker}, key=lambda m: (-depth[m], m))

        roots = sorted({maker[i] for i in outputs if i in maker}, key=lambda n: (depth[n], n))
        return [calls[n] for n in operands_first(roots, deepest_first)]


@dataclass(frozen=True)
class RolledLoop:
    """A static argument of the op of a loop that a pass made of steps written one after another. Derive from it to hold
    more: numbers are hoisted from its steps, and it is counted and shown as a loop."""

    steps: tuple[Step, ...]
    """The computation of each step."""
    length: int
    """The number of steps."""

    @property
    def functions(self) -> int:
        """The number of functions in each step."""
        return len(self.steps)

    def values(self, arrays: Sequence[Any]) -> list[Any]:
        """The values of one step, computed from its inputs."""
        return run_steps(self.steps, arrays)


class Block:
    """A closed graph as an immutable value: blocks of equal structure are equal.

    Values are numbered: input i is i, and the k-th value of all steps is ~k.

    Args:
        inputs: Shape and dtype of each input.
        steps: Op, static arguments, and the numbers of the inputs, in topological order.
        orders: The order of differentiation of each step; empty if the block is only to be run.
        outputs: Numbers of the results.
        stop_gradients: Numbers of the values at which gradients stop.
        places: Where the user wrote each step, None where that is unknown; empty if all are. Equality ignores them.
        results: Shapes and dtypes of each step's results, if they are known.
        taken: The gradients taken in it. Derivatives use them; the values computed do not depend on them.
    """

    inputs: tuple[Spec, ...]
    steps: tuple[Step, ...]
    orders: tuple[int, ...]
    outputs: tuple[int, ...]
    stop_gradients: frozenset[int]
    places: tuple[SourceLocation | None, ...]
    taken: GradientsTaken | None

    def __init__(
        self,
        inputs: tuple[Spec, ...],
        steps: tuple[Step, ...],
        orders: tuple[int, ...],
        outputs: tuple[int, ...],
        stop_gradients: frozenset[int] = frozenset(),
        places: tuple[SourceLocation | None, ...] = (),
        results: tuple[tuple[Spec, ...], ...] | None = None,
        taken: GradientsTaken | None = None,
    ) -> None:
        self.inputs, self.steps, self.orders, self.outputs = inputs, steps, orders, outputs
        self.stop_gradients, self.places, self.taken = stop_gradients, places, taken
        self._known_ranks: tuple[list[int], list[int]] | None = None
        if results is not None:
            self.results = results

    @classmethod
    def of(cls, inputs: tuple[Spec, ...], calls: Sequence[Call], outputs: Sequence[int]) -> Block:
        """The block of some calls, in topological order.

        Args:
            inputs: Shape and dtype of each input; they are numbered from 0.
            calls: The calls, with any numbering of their values.
            outputs: The results, by these numbers.
        """
        numbers = {i: ~n for n, i in enumerate([i for call in calls for i in call.outs])}
        numbers |= {i: i for i in range(len(inputs))}
        steps = tuple([(c.op, c.arguments, tuple([numbers[i] for i in c.ins])) for c in calls])
        return cls(inputs, steps, (), tuple([numbers[i] for i in outputs]))

    @functools.cached_property
    def _hash(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[Any, ...]:
        return self.inputs, self.steps, self.orders, self.outputs, self.stop_gradients, self.taken

    @functools.cached_property
    def results(self) -> tuple[tuple[Spec, ...], ...]:
        """Shapes and dtypes of each step's results."""
        specs: list[Spec] = []
        by_step = []
        for op, arguments, ins in self.steps:
            by_step.append(op.result_specs(tuple([self.inputs[i] if i >= 0 else specs[~i] for i in ins]), arguments))
            specs += by_step[-1]
        return tuple(by_step)

    @functools.cached_property
    def specs(self) -> tuple[Spec, ...]:
        """Shape and dtype of each value of the steps."""
        return tuple([spec for step_specs in self.results for spec in step_specs])

    @functools.cached_property
    def outs(self) -> tuple[tuple[int, ...], ...]:
        """The value numbers of each step's results."""
        counts = [len(step_specs) for step_specs in self.results]
        ends = itertools.accumulate(counts)
        return tuple([tuple([~k for k in range(end - n, end)]) for end, n in zip(ends, counts, strict=True)])

    @property
    def calls(self) -> list[Call]:
        """The steps with the numbers of their outputs, as passes move and change them."""
        return [Call(*step, outs) for step, outs in zip(self.steps, self.outs, strict=True)]

    @property
    def spec_by_number(self) -> dict[int, Spec]:
        """Shape and dtype of each input and each value, by number."""
        return dict(enumerate(self.inputs)) | {~k: spec for k, spec in enumerate(self.specs)}

    def without_identities(self) -> tuple[list[Call], tuple[int, ...]]:
        """The calls without functions that only forward values, and the numbers of the outputs among the remaining
        values."""
        computing: list[Call] = []
        passed: dict[int, int] = {}
        for op, arguments, ins, outs in self.calls:
            taken = tuple([passed.get(i, i) for i in ins])
            if op.forwards_inputs:
                passed.update(zip(outs, taken, strict=False))
            else:
                computing.append(Call(op, arguments, taken, outs))
        return computing, tuple([passed.get(i, i) for i in self.outputs])

    def with_bodies_inline(self) -> Block:
        """The block with each function that merely wraps a body replaced by the body's steps, so that later passes, and
        the estimate of memory, see the steps that run."""
        block = self
        while any([in_place_of(op, arguments) is not None for op, arguments, _ in block.steps]):
            block = block._with_one_level_inline()
        return block

    def _with_one_level_inline(self) -> Block:
        specs = self.spec_by_number
        free = min(specs, default=0)
        instead = {i: i for i in specs}
        calls: list[Call] = []
        for op, arguments, ins, outs in self.calls:
            inputs = tuple([instead[i] for i in ins])
            body = in_place_of(op, arguments)
            if body is None:
                calls.append(Call(op, arguments, inputs, outs))
                continue
            values: list[int] = []
            for (inner, inner_arguments, numbers), results in zip(body.steps, body.results, strict=True):
                taken = tuple(body.picked(inputs, values, numbers))
                new = tuple([free - 1 - k for k in range(len(results))])
                free -= len(results)
                values += new
                calls.append(Call(inner, inner_arguments, taken, new))
            instead.update(zip(outs, body.picked(inputs, values), strict=True))
        return Block.of(self.inputs, calls, [instead[i] for i in self.outputs])

    @property
    def rolled_loops(self) -> tuple[RolledLoop, ...]:
        """The loops in it that a pass has rolled."""
        return tuple([a for _, arguments, _ in self.steps for a in arguments if isinstance(a, RolledLoop)])

    @property
    def functions_to_compile(self) -> int:
        """The number of functions to compile, those in a rolled loop once."""
        return len(self.steps) + sum([loop.functions for loop in self.rolled_loops])

    @functools.cached_property
    def producers(self) -> tuple[int, ...]:
        """The index of the step that computes each value."""
        return tuple([k for k, step_specs in enumerate(self.results) for _ in step_specs])

    @functools.cached_property
    def _arguments(self) -> list[Any]:
        return [argument for _, arguments, _ in self.steps for argument in arguments]

    @functools.cached_property
    def locations(self) -> tuple[Any, ...]:
        """The source locations of the steps in it and in nested bodies."""
        return self.places, *[body.locations for body in bodies_in(self._arguments)]

    @functools.cached_property
    def ops(self) -> frozenset[Op]:
        """The ops in it and in nested bodies."""
        return frozenset([op for op, _, _ in self.steps]).union(*[body.ops for body in bodies_in(self._arguments)])

    @functools.cached_property
    def opaque(self) -> bool:
        """True if it contains user code, which may call functions on the host."""
        return has_opaque(self._arguments)

    @functools.cached_property
    def needs_x64(self) -> bool:
        """True if 64-bit values occur in it."""
        known = any([s.needs_x64 for s in (*self.inputs, *self.specs)])
        return known or any([arguments_need_x64(arguments) for _, arguments, _ in self.steps])

    @functools.cached_property
    def groups(self) -> frozenset[Processes]:
        """The groups of processes among which functions in it exchange arrays."""
        return frozenset().union(*[groups_of(op, arguments) for op, arguments, _ in self.steps])

    def spec(self, number: int) -> Spec:
        """Shape and dtype of an input or a value."""
        return self.inputs[number] if number >= 0 else self.specs[~number]

    @property
    def stops_gradients(self) -> bool:
        """True if gradients stop at a value in it or in a nested body."""
        within = [body for _, arguments, _ in self.steps for body in bodies_in(arguments)]
        return bool(self.stop_gradients) or any([body.stops_gradients for body in within])

    def run(self, arrays: Sequence[Any], steps: Iterable[Step] | None = None) -> list[Any]:
        """The arrays of all values, computed from those of the inputs; by other `steps` of the same numbering, if they
        are passed."""
        return run_steps(self.steps if steps is None else steps, arrays)

    def results_of(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """The arrays of the outputs, computed from those of the inputs."""
        return tuple(self.picked(arrays, self.run(arrays)))

    def picked(self, inputs: Sequence[T], values: Sequence[T], numbers: Iterable[int] | None = None) -> list[T]:
        """The items with these numbers, from one per input and one per value; by default those of the outputs."""
        return [inputs[i] if i >= 0 else values[~i] for i in (self.outputs if numbers is None else numbers)]

    def leaves(self) -> list[Variable]:
        """New leaves, one for each input."""
        return new_leaves(self.inputs)

    def placed(self, inputs: Sequence[Variable]) -> list[Variable]:
        """The outputs as new Variables, computed from these inputs."""
        return self.picked(inputs, self.instantiate(inputs))

    def opened(self) -> OpenedBlock:
        """The block as a new graph on new leaves."""
        inputs = self.leaves()
        values = self.instantiate(inputs)
        return OpenedBlock(inputs, values, self.picked(inputs, values))

    def with_inputs(self, inputs: tuple[Spec, ...], places: Sequence[int]) -> Block:
        """The same block with other inputs, perhaps more of them.

        Args:
            inputs: Shape and dtype of each.
            places: The new index of each present input.
        """
        moved = [tuple([places[i] if i >= 0 else i for i in ins]) for _, _, ins in self.steps]
        steps = tuple([(op, arguments, ins) for (op, arguments, _), ins in zip(self.steps, moved, strict=True)])
        outputs = tuple([places[i] if i >= 0 else i for i in self.outputs])
        taken = None if self.taken is None else self.taken.with_inputs(inputs, places)
        return Block(inputs, steps, self.orders, outputs, self.stop_gradients, self.places, taken=taken)

    def with_outputs(self, outputs: tuple[int, ...]) -> Block:
        """The same block with other outputs, by their numbers."""
        stop, places = self.stop_gradients, self.places
        return Block(self.inputs, self.steps, self.orders, outputs, stop, places, self.results, self.taken)

    def with_taken(self, taken: GradientsTaken) -> Block:
        """The same block with a record of the gradients taken in it."""
        stop, places = self.stop_gradients, self.places
        return Block(self.inputs, self.steps, self.orders, self.outputs, stop, places, self.results, taken)

    def with_steps(self, steps: tuple[Step, ...]) -> Block:
        """The same block with other ops or static arguments, whose results have the same shapes and dtypes."""
        return Block(self.inputs, steps, self.orders, self.outputs, self.stop_gradients, self.places, self.results)

    @staticmethod
    def changed_in(arguments: tuple[Any, ...], change: Callable[[Block], Block]) -> tuple[Any, ...]:
        """Static arguments with each body, including those in tuples, replaced by what `change` makes of it."""
        return tuple([
            change(argument) if isinstance(argument, Block) else
            Block.changed_in(argument, change) if argument.__class__ is tuple and bodies_in(argument) else argument
            for argument in arguments
        ])  # fmt: skip

    def instantiate(
        self, inputs: Sequence[Variable], origins: Origins | None = None, existing: Sequence[Function] = ()
    ) -> list[Variable]:
        """Build all values as new Variables on these inputs; value k is at index k.

        Args:
            inputs: The Variables to build on.
            origins: The calls of rules that emitted the steps, if they are known.
            existing: The functions that existed before, which `origins` numbers.
        """
        count = len(self.steps)
        contexts = (build_options().applying.context,) * count if origins is None else origins.contexts
        steps = zip(*self._columns, self._ranks(inputs), contexts, strict=True)
        values = make(steps, inputs, next_serials(count), origins, existing)[len(inputs) :]
        for number in self.stop_gradients:
            values[~number].need_grad = False
        if self.places:
            for place, outs in zip(self.places, self.outs, strict=True):
                if place is not None:
                    values[~outs[0]].parent.location = place  # type: ignore[union-attr]
        return values

    @functools.cached_property
    def _columns(self) -> list[tuple[Any, ...]]:
        """The steps as columns, with inputs and values numbered in one list, as `make` takes them."""
        count = len(self.inputs)
        ops, arguments, ins = zip(*self.steps, strict=True) if self.steps else ((), (), ())
        places = [tuple([i if i >= 0 else count + ~i for i in numbers]) for numbers in ins]
        return [ops, arguments, tuple(places), self.results, self.orders]

    def _ranks(self, inputs: Sequence[Variable]) -> list[int]:
        """The ranks of the functions when built on these inputs, cached because they are most often the last ones."""
        above = [0 if x.parent is None else x.parent.rank + 1 for x in inputs]
        known = self._known_ranks
        if known is None or known[0] != above:
            ranks, values = [], above[:]
            for (_, _, places, step_specs, _) in zip(*self._columns, strict=True):
                ranks.append(max([values[i] for i in places], default=0))
                values += [ranks[-1] + 1] * len(step_specs)
            self._known_ranks = known = above, ranks
        return known[1]

    def inputs_above(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """The inputs that the values with these numbers depend on."""
        producers, above = self.producers, set(numbers)
        waiting = [*above]
        while waiting:
            i = waiting.pop()
            new = [] if i >= 0 else [k for k in self.steps[producers[~i]][2] if k not in above]
            above.update(new)
            waiting += new
        return tuple(sorted([i for i in above if i >= 0]))

    def reach(self, moving: Iterable[int]) -> set[int]:
        """The numbers of all values that depend differentiably on the inputs `moving`, and of these inputs."""
        reached = {i for i in moving if self.inputs[i].differentiable}
        for (_, _, ins), outs in zip(self.steps, self.outs, strict=True):
            if not reached.isdisjoint(ins):
                reached.update([n for n in outs if self.spec(n).differentiable and n not in self.stop_gradients])
        return reached

    def depending(self, inputs: Iterable[int]) -> set[int]:
        """The numbers of all values that depend on the given inputs, differentiably or not, and of these inputs."""
        dependent = set(inputs)
        for (op, arguments, ins), outs in zip(self.steps, self.outs, strict=True):
            marked = [i in dependent for i in ins]
            if any(marked):
                depends = dependence(op, arguments, marked, len(outs))
                dependent.update([i for i, does in zip(outs, depends, strict=True) if does])
        return dependent

    def gradient(
        self, seeded: tuple[int, ...], wanted: tuple[int, ...], fixed: tuple[int, ...], held: tuple[int, ...]
    ) -> BlockGradient:
        """The body that computes the gradient of <seeds, values> with respect to some of the inputs.

        Args:
            seeded: Numbers of the values, one per seed.
            wanted: The inputs to differentiate by.
            fixed: Inputs that are the same at each run, and values that are kept: what depends only on them is not.
            held: Other inputs and values that are available in any case, needed or not.
        """
        result: BlockGradient = engine.body_gradient(self, seeded, wanted, fixed, held)
        return result

    def tangent(self, moving: tuple[int, ...], along: tuple[int, ...], saved: tuple[int, ...] = ()) -> BlockTangent:
        """The body that computes the outputs and the tangents of some values.

        Args:
            moving: The inputs that have tangents.
            along: Numbers of the values whose tangents are wanted.
            saved: Numbers of values that are passed in, and not recomputed.
        """
        result: BlockTangent = engine.body_tangent(self, moving, along, saved)
        return result

    def batched(
        self, input_kinds: tuple[str, ...], count: int, wanted: tuple[int, ...], kinds: tuple[str, ...]
    ) -> Block:
        """The body vectorised over a batch axis of some of the inputs.

        Args:
            input_kinds: For each input, "each" if it has the leading batch axis, and "" if it is as it was.
            count: The size of the axis.
            wanted: Numbers of the values to return.
            kinds: For each of these, "each" or "sum", or "" to have the axis only if it depends on an input that has
                it.
        """
        result: Block = engine.body_batched(self, input_kinds, count, wanted, kinds)
        return result

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Block) and self._hash == other._hash and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"<block of {len(self.steps)} functions>"


def new_leaves(specs: Iterable[Spec]) -> list[Variable]:
    """One new leaf for each shape and dtype."""
    return [leaf_of(NdArray.of_spec(spec)) for spec in specs]


class OpenedBlock(NamedTuple):
    """A block built as a graph of its own."""

    inputs: list[Variable]
    values: list[Variable]
    outputs: list[Variable]


class BlockGradient(NamedTuple):
    """A body that computes the gradient of another body."""

    body: Block
    """Its inputs are the residuals, then the seeds; its outputs are the gradients that are not zero."""
    residuals: tuple[int, ...]
    """Numbers of the inputs and values of the differentiated body that the gradient needs."""
    reached: tuple[int, ...]
    """The inputs that have a gradient, in the order of the outputs."""
    anew: bool
    """Whether it recomputes all values, so that a loop has to stack as little as possible."""


class BlockTangent(NamedTuple):
    """A body that computes the values of another body and their tangents."""

    body: Block
    """Its inputs are the original body's, the kept values, and the tangents of the moving inputs; its outputs are the
    original body's, then the tangents that are not zero."""
    moved: tuple[int, ...]
    """The numbers of the values that have a tangent, in the order of the outputs."""


def has_opaque(arguments: Iterable[Any]) -> bool:
    """True if user code is among the static arguments."""
    return any([getattr(a, "opaque", False) or (isinstance(a, tuple) and has_opaque(a)) for a in arguments])


def bodies_in(arguments: Iterable[Any]) -> list[Block]:
    """The bodies among static arguments, including those in tuples."""
    items = [item for argument in arguments for item in (argument if isinstance(argument, tuple) else (argument,))]
    return [body for body in items if isinstance(body, Block)]
