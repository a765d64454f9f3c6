"""Forward and gradients of a structure as one executable, which is found again or made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ..execution.compiled import BoundedCache, executable_of, executables, weakly
from ..execution.lower import linearize
from ..execution.plans import RunPlan
from ..execution.program import Program
from ..graph import NdArray, Variable, contained, functions_of, path_between, set_switches
from ..graph.options import watching_for_users_code
from ..graph.variable import leaf_of
from .binding import reached_from
from .grad import emitted
from .literals import Places as LiteralPlaces
from .literals import WithoutLiterals, with_leaves, without_literals
from .request import Request

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
