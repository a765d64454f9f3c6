"""Forward and gradients of a structure as one executable, which is found again or made.

What is emitted for a graph depends on its numbers: zeros and ones vanish, others are collected. So a graph that comes
again with another number, as `loss + lam * penalty` does where lam is annealed, would be differentiated anew each time.
Nobody sees the graph of a backward's gradients, so leaves stand for numbers there, which are right for every number by
the rules alone. Whole numbers stay, most of which come of powers and rules and are collected, and so do numbers that
are not finite and those of integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..execution.compiled import BoundedCache, executable_of, executables, weakly
from ..execution.lower import linearize
from ..execution.partitions import hoist_from
from ..execution.plans import RunPlan
from ..execution.program import HoistedLiteral, Program, calls_of
from ..graph import Function, NdArray, Variable, contained, create, functions_of, path_between, set_switches
from ..graph.closing import Closing
from ..graph.options import watching_for_users_code
from ..graph.spec import DType, spec_of
from ..graph.variable import leaf_of
from ..rewrite.builder import plain_builder
from .binding import reached_from
from .grad import emitted
from .request import Request

LiteralPlaces = tuple[tuple[int, DType], ...]
"""Hoisted literals by their places, each with the dtype of what is computed with it."""


class WithoutLiterals(NamedTuple):
    """A program, and the numbers in it that are inputs."""

    program: Program
    """The same with those numbers hoisted: equal for all that differ in them alone."""
    values: dict[int, float]
    """The numbers, by their places."""

    def arrays(self, places: LiteralPlaces) -> tuple[np.ndarray[Any, Any], ...]:
        """The numbers as arrays."""
        with np.errstate(over="ignore"):
            return tuple([np.asarray(self.values[place]).astype(dtype) for place, dtype in places])


def without_literals(program: Program) -> WithoutLiterals | None:
    """Returns a program without its numbers, and these; None where it has none that leaves could stand for."""
    block, numbers = hoist_from(program.block)
    if not numbers:
        return None
    calls, specs = calls_of(program.block)
    values: dict[int, float] = {}
    steps = list(program.block.steps)
    for i, ((op, arguments, ins), call) in enumerate(zip(block.steps, calls, strict=True)):
        spec = specs[call.outs[0]]
        if op.from_variables is not None and len(call.outs) == 1 and all([specs[j] is spec for j in call.ins]):
            pairs = zip(arguments, steps[i][1], strict=True)
            steps[i] = op, tuple([_hoisted(*pair, values) for pair in pairs]), ins
    if not values:
        return None
    return WithoutLiterals(program._replace(block=program.block.with_steps(tuple(steps))), values)


def _hoisted(argument: Any, own: Any, values: dict[int, float]) -> Any:
    """An argument with those numbers hoisted that leaves stand for, which are entered in `values`."""
    if isinstance(argument, tuple):
        return tuple([_hoisted(*pair, values) for pair in zip(argument, own, strict=True)])
    if argument.__class__ is not HoistedLiteral or not math.isfinite(own) or float(own).is_integer():
        return own
    values[argument.place] = float(own)
    return argument


class WithLeaves(NamedTuple):
    """A graph in which leaves stand for numbers."""

    variables: list[Variable]
    """What takes the place of those that were given."""
    leaves: dict[tuple[int, DType], Variable]
    """The leaves, by their places and dtypes."""


@contained
def with_leaves(
    outputs: Sequence[Variable], others: Sequence[Variable], program: Program, found: WithoutLiterals
) -> WithLeaves | None:
    """Returns a graph that computes the same, with leaves in place of numbers; None where the program is not just the
    graph.

    Args:
        outputs: What is computed.
        others: Variables above them, which are computed as well.
        program: The program that does so.
        found: The numbers in it.
    """
    builder = plain_builder()
    set_switches(auto_forward=False, no_grad=False, mark=None, builder=builder)
    functions = functions_of(outputs)
    closing = Closing()
    closing.write(functions)
    if tuple(closing.steps) != program.block.steps:  # effects have added to it
        return None
    instead: dict[tuple[Function, int], Variable] = {}
    leaves: dict[tuple[int, DType], Variable] = {}

    def leaf_for(argument: Any, dtype: DType) -> Any:
        if isinstance(argument, tuple):
            return tuple([leaf_for(each, dtype) for each in argument])
        if argument.__class__ is not HoistedLiteral:
            return argument
        key = argument.place, dtype
        if key not in leaves:
            leaves[key] = leaf_of(NdArray.of_spec(spec_of((), dtype)))
        return leaves[key]

    for f, (op, arguments, _) in zip(functions, found.program.block.steps, strict=True):
        inputs = tuple([x if x.parent is None else instead.get((x.parent, x.index), x) for x in f.inputs])
        if arguments != f.arguments:
            assert op.from_variables is not None
            builder.call, builder.order = f.call, f.order
            numbers = leaf_for(arguments, f.specs[0].dtype)
            results: tuple[Variable, ...] = (op.from_variables(f, inputs, numbers),)
        elif any([x is not y for x, y in zip(inputs, f.inputs, strict=True)]):
            made = create(op, inputs, f.arguments, f.effects, f.call, f.order)
            results = made if op.multiple_results else (made,)
        else:
            continue
        for y, z in zip(f.outputs, results, strict=True):
            z._need_grad = y._need_grad
            instead[f, y.index] = z
    variables = [instead.get((y.parent, y.index), y) if y.parent is not None else y for y in (*outputs, *others)]
    return WithLeaves(variables, leaves)


Wanted = tuple[int, ...]
Places = tuple[tuple[int, int], ...]
"""Variables in the middle of a graph, by the number of their function and that among its outputs."""
Passed = frozenset[tuple[int, int]]


class Fused(NamedTuple):
    """Forward and gradient of a structure as one executable.

    Its arguments are the arrays of the forward graph's leaves, of the seeds that are given, `numbers`, and the arrays
    of `others`; its results the outputs, the persistent Variables, the leaves that the forward updates, the gradients,
    and those that are retained.
    """

    executable: Callable[..., tuple[Any, ...]]
    others: list[Variable]
    """Leaves that backward rules brought in. They belong to one graph, so such a structure is not shared."""
    retained: Places
    """Which of the Variables in the middle have a gradient among the results."""
    passed: Passed
    """Which of them a gradient passes that is not to be kept."""
    literals: LiteralPlaces = ()
    """The numbers of the graph that are inputs."""
    numbers: tuple[Any, ...] = ()
    """Their arrays."""
    is_users: bool = False
    """Whether code of the user's had a part in it, which is to run again for the next one."""


class FusedKey(NamedTuple):
    """What is wanted of a structure, and what else decides which executable gives it."""

    wanted: Wanted
    """The leaves that need a gradient, by their number."""
    asked: Places
    """The Variables in the middle whose `need_grad` was set to True."""
    stop_gradients: Places
    """Those at which gradients stop."""
    seeded: tuple[bool, ...]
    """Which outputs are given a gradient."""
    rules: int
    """The version of the registry."""
    simplify: bool | frozenset[str]
    retained: Places
    """The Variables in the middle whose gradient is to be kept."""
    memory: Any
    """The policy of what is computed again."""


class _Shared:
    """What graphs of one structure share: a Fused, as long as its executable is kept."""

    __slots__ = ("executable", "literals", "numbers", "passed", "retained")

    def __init__(self, fused: Fused) -> None:
        self.executable = weakly(fused.executable)
        self.retained = fused.retained
        self.passed = fused.passed
        self.literals = fused.literals
        self.numbers = fused.numbers

    def fused(self) -> Fused | None:
        """The Fused, or None where the executable is gone."""
        executable = self.executable()
        if executable is None:
            return None
        return Fused(executable, [], self.retained, self.passed, self.literals, self.numbers)


_fused = executables.registered(BoundedCache(512))
"""What is known of the executables of structures; those themselves are in `executables`, and may be gone from there."""


class GradientGraph(NamedTuple):
    """What a backward computes."""

    gradients: list[Variable]
    """Of the leaves."""
    seeds: list[Variable]
    """The leaves that stand for the seeds that are given."""
    retained: dict[tuple[int, int], Variable]
    """The gradients of Variables in the middle, by their places."""


def fused_for(outputs: list[Variable], plan: RunPlan, key: FusedKey, recompute: Any) -> Fused:
    """What was made for the structure of a graph, or is made now."""
    table = _fused.part([op for op, _, _ in plan.program.block.steps])
    fused = _found(table, (plan.program, key))
    if fused is not None:
        return fused
    held = set(map(id, plan.kept))
    is_plain = key.memory in (None, False) and not key.asked and all([id(y) in held for y in at(plan, key.retained)])
    found = without_literals(plan.program) if is_plain else None
    if found is not None:
        fused = _found(table, (found.program, key)) or _fuse_with_leaves(outputs, plan, key, recompute, found)
        if fused is not None:
            _keep(table, (found.program, key), fused)
            fused = fused._replace(numbers=found.arrays(fused.literals))
            _keep(table, (plan.program, key), fused)
            return fused
    fused = _fuse(outputs, plan, key, passed(outputs, plan, key), recompute)
    _keep(table, (plan.program, key), fused)
    return fused


def _found(table: BoundedCache, structure: tuple[Program, FusedKey]) -> Fused | None:
    shared: _Shared | None = table.find(structure)
    return None if shared is None else shared.fused()


def _keep(table: BoundedCache, structure: tuple[Program, FusedKey], fused: Fused) -> None:
    if not fused.others and not fused.is_users:
        shared: _Shared = table.keep(structure, _Shared(fused))
        shared.executable = weakly(fused.executable)


def _fuse(
    outputs: list[Variable], plan: RunPlan, key: FusedKey, met: Passed, recompute: Any,
    kept: Sequence[Variable] | None = None, numbers: Sequence[Variable] = (),
) -> Fused:
    """Emit the gradients of `outputs`, and make an executable of all.

    Args:
        outputs: Those of the plan, or what computes the same.
        plan: That of the graph.
        key: What is wanted.
        met: What gradients pass.
        recompute: The policy of what is computed again.
        kept: What computes the same as the Variables that the plan keeps; by default these.
        numbers: Leaves that stand for numbers.
    """
    graph, is_users = watching_for_users_code(lambda: gradient_graph(outputs, plan, key, met, recompute, kept))
    results = [*graph.gradients, *graph.retained.values()]
    program, others = _program(outputs, plan, results, [*graph.seeds, *numbers], kept)
    return Fused(
        executable_of(program), others, tuple(graph.retained), met.difference(key.retained), is_users=is_users
    )


def _fuse_with_leaves(
    outputs: list[Variable], plan: RunPlan, key: FusedKey, recompute: Any, found: WithoutLiterals
) -> Fused | None:
    """The same, with leaves for numbers; None where there can be none."""
    graph = with_leaves(outputs, plan.kept, plan.program, found)
    if graph is None:
        return None
    count = len(outputs)
    kept, numbers = graph.variables[count:], list(graph.leaves.values())
    fused = _fuse(graph.variables[:count], plan, key, passed(outputs, plan, key), recompute, kept, numbers)
    return None if fused.others else fused._replace(literals=tuple(graph.leaves))


@contained
def gradient_graph(
    outputs: list[Variable], plan: RunPlan, key: FusedKey, met: Passed, recompute: Any = False,
    kept: Sequence[Variable] | None = None,
) -> GradientGraph:
    """Emit the gradients that `key` says; the arguments are those of `_fuse`."""
    seeds = [leaf_of(NdArray.of_spec(y.spec)) if given else None for y, given in zip(outputs, key.seeded, strict=True)]
    set_switches(auto_forward=False, no_grad=False)
    leaves = [plan.leaves[i] for i in key.wanted]
    given = [seed for seed in seeds if seed is not None]

    def program_of(gradients: list[Variable]) -> Program:
        return _program(outputs, plan, gradients, given)[0]

    same = dict(zip(map(id, plan.kept), kept or (), strict=False))
    retained_at = [same.get(id(y), y) for y in at(plan, key.retained)]
    places = dict(zip(map(id, retained_at), key.retained, strict=True))
    inputs = [*leaves, *at(plan, key.asked)]
    if places:
        _, active, _ = path_between(outputs, inputs)
        inputs += [y for y in retained_at if id(y) not in active and places[id(y)] in met]
    found = emitted(Request(
        outputs, inputs, seeds, retain=bool(places), retained_at=frozenset(places),
        recompute=recompute, final=True, program_of=program_of,
    ))
    retained = {places[id(y)]: gy for y, gy in found.retained}
    return GradientGraph(found.gradients[: len(leaves)], given, retained)


def _program(
    outputs: list[Variable],
    plan: RunPlan,
    gradients: Sequence[Variable],
    seeds: Sequence[Variable],
    kept: Sequence[Variable] | None = None,
) -> tuple[Program, list[Variable]]:
    """The program of a forward and its gradients, and its leaves besides those of the plan and the seeds."""
    first = [*plan.leaves, *seeds]
    kept = plan.kept if kept is None else kept
    linear = linearize([*outputs, *kept, *gradients], first=first, device=plan.program.device)
    results = linear.program.block.outputs
    end = len(outputs) + len(kept)
    values, rest = results[:end], results[end:]
    updates = {id(x): number for x, number in zip(linear.updated, rest[len(gradients) :], strict=True)}
    block = linear.program.block.with_outputs(
        (*values, *[updates[id(x)] for x in plan.updated], *rest[: len(gradients)])
    )
    return linear.program._replace(block=block), linear.leaves[len(first) :]


def at(plan: RunPlan, places: Iterable[tuple[int, int]]) -> list[Variable]:
    """The Variables in the middle of a graph at these places."""
    return [plan.functions[i].outputs[k] for i, k in places]


def passed(outputs: list[Variable], plan: RunPlan, key: FusedKey) -> Passed:
    """Which Variables in the middle a gradient passes: those above which a leaf needs one, and that it can reach."""
    needing = {id(x) for x in (*[plan.leaves[i] for i in key.wanted], *at(plan, key.asked))}
    for f in functions_of(outputs):
        if not needing.isdisjoint(map(id, f.inputs)):
            living = [ref() for ref in f._outputs]
            needing |= {id(y) for y in living if y is not None and y._need_grad is not False}
    met = needing & reached_from(outputs, frozenset())
    return frozenset([(i, k) for i, f in enumerate(plan.functions) for k, y in enumerate(f._outputs) if id(y()) in met])
