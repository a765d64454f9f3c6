"""The executable of a backward, forward and gradients in one: look it up by structure, or make it.

A gradient graph depends on the numbers in the forward graph: zeros and ones vanish, others are collected. So a graph
that differs from an earlier one only in a number, as `loss + lam * penalty` does when lam is annealed, would be
differentiated again each time. Nobody sees the gradient graph of a backward, so there numbers are hoisted to leaves,
which is correct for every number. Integers stay, since most come from powers and rules and are collected; so do
non-finite numbers and those of integer arrays. The index of an element becomes a leaf too, so that one executable gives
the gradient of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ..autodiff.binding import reached_from
from ..autodiff.grad import emitted
from ..autodiff.request import Request
from ..graph import Function, NdArray, Variable, contained, create, functions_of, path_between, set_switches
from ..graph.bounded_cache import BoundedCache, cache_about_structures
from ..graph.closing import Closing
from ..graph.options import watching_for_users_code
from ..graph.spec import DType, spec_of
from ..graph.variable import leaf_of
from ..rewrite.builder import plain_builder
from .compiled import executable_of, while_cached
from .lower import linearize
from .partitions import hoist_from
from .plans import RunPlan
from .program import HoistedLiteral, Program, calls_of

LiteralPlaces = tuple[tuple[int, DType], ...]
"""The places of hoisted literals, each with the dtype of the computation that uses it."""


class WithoutLiterals(NamedTuple):
    """A program with its numbers hoisted."""

    program: Program
    """The program with those numbers hoisted: equal for programs that differ only in them."""
    values: dict[int, float]
    """The numbers, by place."""

    def arrays(self, places: LiteralPlaces) -> tuple[np.ndarray[Any, Any], ...]:
        """The numbers as arrays."""
        with np.errstate(over="ignore"):
            return tuple([np.asarray(self.values[place]).astype(dtype) for place, dtype in places])


def without_literals(program: Program) -> WithoutLiterals | None:
    """Hoist a program's numbers; None if it has none that leaves could replace."""
    block, numbers = hoist_from(program.block)
    if not numbers:
        return None
    calls, specs = calls_of(program.block)
    values: dict[int, float] = {}
    steps = list(program.block.steps)
    for i, ((op, arguments, ins), call) in enumerate(zip(block.steps, calls, strict=True)):
        spec = specs[call.outs[0]]
        if op.by_index is not None and all([each.__class__ in (int, HoistedLiteral) for each in arguments[0]]):
            key = zip(arguments[0], steps[i][1][0], strict=True)
            values.update([(each.place, own) for each, own in key if each.__class__ is HoistedLiteral])
            steps[i] = op, arguments, ins
        elif op.from_variables is not None and len(call.outs) == 1 and all([specs[j] is spec for j in call.ins]):
            pairs = zip(arguments, steps[i][1], strict=True)
            steps[i] = op, tuple([_hoisted(*pair, values) for pair in pairs]), ins
    if not values:
        return None
    return WithoutLiterals(program._replace(block=program.block.with_steps(tuple(steps))), values)


def _hoisted(argument: Any, own: Any, values: dict[int, float]) -> Any:
    """An argument with its hoistable numbers hoisted; they are entered in `values`."""
    if isinstance(argument, tuple):
        return tuple([_hoisted(*pair, values) for pair in zip(argument, own, strict=True)])
    if argument.__class__ is not HoistedLiteral or not math.isfinite(own) or float(own).is_integer():
        return own
    values[argument.place] = float(own)
    return argument


class WithLeaves(NamedTuple):
    """A graph with leaves in place of numbers."""

    instead: dict[int, Variable]
    """The Variables that replace the given ones, by their ids."""
    leaves: dict[tuple[int, DType], Variable]
    """The leaves, by place and dtype."""


@contained
def with_leaves(
    outputs: Sequence[Variable], others: Sequence[Variable], program: Program, found: WithoutLiterals
) -> WithLeaves | None:
    """Rebuild a graph with leaves in place of numbers; None if the program is not just the graph.

    Args:
        outputs: The outputs of the graph.
        others: Variables above them whose replacements are needed as well.
        program: The program of the graph.
        found: The numbers in it.
    """
    builder = plain_builder()
    set_switches(auto_forward=False, no_grad=False, mark=None, builder=builder)
    functions = functions_of(outputs)
    closing = Closing()
    closing.write(functions)
    if tuple(closing.steps) != program.block.steps:  # effects have added steps
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
        if arguments != f.arguments and op.by_index is not None:  # an element
            results: tuple[Variable, ...] = (inputs[0][leaf_for(arguments[0], np.dtype(np.int32))],)
        elif arguments != f.arguments:
            assert op.from_variables is not None
            builder.call, builder.order = f.call, f.order
            numbers = leaf_for(arguments, f.specs[0].dtype)
            results = (op.from_variables(f, inputs, numbers),)
        elif any([x is not y for x, y in zip(inputs, f.inputs, strict=True)]):
            made = create(op, inputs, f.arguments, f.effects, f.call, f.order)
            results = made if op.multiple_results else (made,)
            if f.effects:
                assert results[0].parent is not None
                results[0].parent.serial = f.serial  # leaves are updated in the order of the user's calls
        else:
            continue
        for y, z in zip(f.outputs, results, strict=True):
            z._need_grad = y._need_grad
            instead[f, y.index] = z
    given = [y for y in (*outputs, *others) if y.parent is not None]
    return WithLeaves({id(y): instead.get((y.parent, y.index), y) for y in given}, leaves)  # type: ignore[arg-type]


Wanted = tuple[int, ...]
Places = tuple[tuple[int, int], ...]
"""Intermediate Variables of a graph, by the index of their function and of the output."""
Passed = frozenset[tuple[int, int]]


class Fused(NamedTuple):
    """Forward and gradients of a structure as one executable.

    Its arguments are the arrays of the forward graph's leaves, of the given seeds, `numbers`, and the arrays of
    `others`; its results are the outputs, the persistent Variables, the leaves that the forward updates, the gradients,
    and the retained gradients.
    """

    executable: Callable[..., tuple[Any, ...]]
    others: list[Variable]
    """Leaves that backward rules introduced. They belong to one graph, so such a structure is not shared."""
    retained: Places
    """The intermediate Variables whose gradients are among the results."""
    passed: Passed
    """The intermediate Variables that a gradient passes without being kept."""
    literals: LiteralPlaces = ()
    """The hoisted numbers of the graph."""
    numbers: tuple[Any, ...] = ()
    """Their arrays."""
    is_users: bool = False
    """Whether user code took part in it, and has to run again for the next one."""


class FusedKey(NamedTuple):
    """The key of a structure's backward executable, besides the structure: what is wanted, and the settings."""

    wanted: Wanted
    """The indices of the leaves that need a gradient."""
    asked: Places
    """The intermediate Variables whose `need_grad` was set to True."""
    stop_gradients: Places
    """The intermediate Variables at which gradients stop."""
    seeded: tuple[bool, ...]
    """Which outputs have a given gradient."""
    rules: int
    """The version of the registry."""
    simplify: bool | frozenset[str]
    retained: Places
    """The intermediate Variables whose gradients are to be kept."""
    memory: Any
    """The rematerialisation policy."""


class _Shared:
    """The part of a Fused that graphs of one structure share, as long as the executable is cached."""

    __slots__ = ("executable", "literals", "numbers", "passed", "retained")

    def __init__(self, fused: Fused) -> None:
        self.executable = while_cached(fused.executable)
        self.retained = fused.retained
        self.passed = fused.passed
        self.literals = fused.literals
        self.numbers = fused.numbers

    def fused(self) -> Fused | None:
        """The Fused, or None if the executable is gone."""
        executable = self.executable()
        if executable is None:
            return None
        return Fused(executable, [], self.retained, self.passed, self.literals, self.numbers)


_fused = cache_about_structures(512)
"""Cached facts about executables of structures; the executables themselves are in `executables`, and may be evicted."""


class GradientGraph(NamedTuple):
    """The gradient graph of a backward."""

    gradients: list[Variable]
    """The gradients of the leaves."""
    seeds: list[Variable]
    """The leaves for the given seeds."""
    retained: dict[tuple[int, int], Variable]
    """The gradients of intermediate Variables, by place."""


def fused_for(outputs: list[Variable], plan: RunPlan, key: FusedKey, recompute: Any) -> Fused:
    """The Fused of a graph's structure, cached or new."""
    table = _fused.part([op for op, _, _ in plan.program.block.steps])
    fused = _found(table, (plan.program, key))
    if fused is not None:
        return fused
    found = without_literals(plan.program) if key.memory in (None, False) else None
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
        shared.executable = while_cached(fused.executable)


def _fuse(
    outputs: list[Variable], plan: RunPlan, key: FusedKey, met: Passed, recompute: Any,
    instead: Mapping[int, Variable] = MappingProxyType({}), numbers: Sequence[Variable] = (),
) -> Fused:
    """Emit the gradients of `outputs`, and make one executable of forward and gradients.

    Args:
        outputs: The outputs of the plan, or equivalent Variables.
        plan: The plan of the graph.
        key: What is wanted.
        met: The Variables that gradients pass.
        recompute: The rematerialisation policy.
        instead: Equivalent Variables for intermediate ones of the plan, by their ids.
        numbers: Leaves that stand for numbers.
    """
    graph, is_users = watching_for_users_code(lambda: gradient_graph(outputs, plan, key, met, recompute, instead))
    results = [*graph.gradients, *graph.retained.values()]
    program, others = _program(outputs, plan, results, [*graph.seeds, *numbers], instead)
    return Fused(
        executable_of(program), others, tuple(graph.retained), met.difference(key.retained), is_users=is_users
    )


def _fuse_with_leaves(
    outputs: list[Variable], plan: RunPlan, key: FusedKey, recompute: Any, found: WithoutLiterals
) -> Fused | None:
    """As `_fuse`, with leaves for numbers; None if that is impossible."""
    graph = with_leaves(outputs, [*plan.kept, *at(plan, (*key.asked, *key.retained))], plan.program, found)
    if graph is None:
        return None
    replaced, numbers = [graph.instead.get(id(y), y) for y in outputs], list(graph.leaves.values())
    fused = _fuse(replaced, plan, key, passed(outputs, plan, key), recompute, graph.instead, numbers)
    return None if fused.others else fused._replace(literals=tuple(graph.leaves))


@contained
def gradient_graph(
    outputs: list[Variable], plan: RunPlan, key: FusedKey, met: Passed, recompute: Any = False,
    instead: Mapping[int, Variable] = MappingProxyType({}),
) -> GradientGraph:
    """Emit the gradients that `key` asks for; for the arguments see `_fuse`."""
    seeds = [leaf_of(NdArray.of_spec(y.spec)) if given else None for y, given in zip(outputs, key.seeded, strict=True)]
    set_switches(auto_forward=False, no_grad=False)
    leaves = [plan.leaves[i] for i in key.wanted]
    given = [seed for seed in seeds if seed is not None]

    def program_of(gradients: list[Variable]) -> Program:
        return _program(outputs, plan, gradients, given)[0]

    asked, retained_at = ([instead.get(id(y), y) for y in at(plan, ys)] for ys in (key.asked, key.retained))
    places = dict(zip(map(id, retained_at), key.retained, strict=True))
    inputs = [*leaves, *asked]
    if places:
        _, active, _ = path_between(outputs, inputs)
        inputs += [y for y in retained_at if id(y) not in active and places[id(y)] in met]
    found = emitted(Request(
        outputs, inputs, seeds, retain=bool(places), retained_at=frozenset(places),
        recompute=recompute, final=True, runs_as=program_of,
    ))
    retained = {places[id(y)]: gy for y, gy in found.retained}
    return GradientGraph(found.gradients[: len(leaves)], given, retained)


def _program(
    outputs: list[Variable],
    plan: RunPlan,
    gradients: Sequence[Variable],
    seeds: Sequence[Variable],
    instead: Mapping[int, Variable] = MappingProxyType({}),
) -> tuple[Program, list[Variable]]:
    """The program of a forward and its gradients, and its leaves other than the plan's and the seeds."""
    first = [*plan.leaves, *seeds]
    kept = [instead.get(id(y), y) for y in plan.kept]
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
    """The intermediate Variables of a graph at these places."""
    return [plan.functions[i].outputs[k] for i, k in places]


def passed(outputs: list[Variable], plan: RunPlan, key: FusedKey) -> Passed:
    """The intermediate Variables that a gradient passes: those it can reach, and above which a leaf needs one."""
    needing = {id(x) for x in (*[plan.leaves[i] for i in key.wanted], *at(plan, key.asked))}
    for f in functions_of(outputs):
        if not needing.isdisjoint(map(id, f.inputs)):
            living = [ref() for ref in f._outputs]
            needing |= {id(y) for y in living if y is not None and y._need_grad is not False}
    met = needing & reached_from(outputs, frozenset())
    return frozenset([(i, k) for i, f in enumerate(plan.functions) for k, y in enumerate(f._outputs) if id(y()) in met])
