"""The executable of a backward, forward and gradients in one: look it up by structure, or make it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ..autodiff.grad import emitted
from ..autodiff.request import Request, reached_from
from ..graph import NdArray, Switched, Variable, contained, functions_of, path_between
from ..graph.bounded_cache import BoundedCache
from ..graph.options import watching_for_users_code
from ..graph.variable import leaf_of
from .compiled import executables, taken_apart, while_cached
from .lower import linearize
from .plans import RunPlan
from .program import Program

Wanted = tuple[int, ...]
Places = tuple[tuple[int, int], ...]
"""Intermediate Variables of a graph, by the index of their function and of the output."""
Passed = frozenset[tuple[int, int]]


class Fused(NamedTuple):
    """Forward and gradients of a structure as one executable.

    Its arguments are the arrays of the forward graph's leaves, of the given seeds, and of `others`; its results are the
    outputs, the persistent Variables, the leaves that the forward updates, the gradients, and the retained gradients.
    """

    executable: Callable[..., tuple[Any, ...]]
    others: list[Variable]
    """Leaves that backward rules introduced. They belong to one graph, so such a structure is not shared."""
    retained: Places
    """The intermediate Variables whose gradients are among the results."""
    passed: Passed
    """The intermediate Variables that a gradient passes without being kept."""
    is_users: bool = False
    """Whether user code took part in it, and has to run again for the next one."""

    @property
    def may_wait(self) -> bool:
        """Whether it may run later, or as a part of an update of parameters."""
        return not (self.others or self.retained or self.is_users) and taken_apart(self.executable)[0].may_wait


class FusedKey(NamedTuple):
    """The key of a structure's backward executable, besides the structure: what is wanted, and the settings."""

    wanted: Wanted
    """The indices of the leaves that need a gradient."""
    inside: Places
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

    __slots__ = ("executable", "passed", "retained")

    def __init__(self, fused: Fused) -> None:
        self.executable = while_cached(fused.executable)
        self.retained = fused.retained
        self.passed = fused.passed

    def fused(self) -> Fused | None:
        """The Fused, or None if the executable is gone."""
        executable = self.executable()
        if executable is None:
            return None
        return Fused(executable, [], self.retained, self.passed)


_fused = BoundedCache.about_structures(512)
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
    """The Fused of a graph's structure, cached or new.

    Args:
        outputs: The outputs of the plan.
        plan: The plan of the graph.
        key: What is wanted.
        recompute: The rematerialisation policy.
    """
    table = _fused.part([op for op, _, _ in plan.program.block.steps])
    shared: _Shared | None = table.find((plan.program, key))
    fused = None if shared is None else shared.fused()
    if fused is not None:
        return fused
    met = passed(outputs, plan, key)
    graph, is_users = watching_for_users_code(lambda: gradient_graph(outputs, plan, key, met, recompute))
    program, others = _program(outputs, plan, [*graph.gradients, *graph.retained.values()], graph.seeds)
    fused = Fused(executables.of(program), others, tuple(graph.retained), met.difference(key.retained), is_users)
    if not others and not is_users:
        shared = table.keep((plan.program, key), _Shared(fused))
        shared.executable = while_cached(fused.executable)
    return fused


@contained
def gradient_graph(
    outputs: list[Variable], plan: RunPlan, key: FusedKey, met: Passed, recompute: Any = False
) -> GradientGraph:
    """Emit the gradients that `key` asks for; `met` are the Variables that they pass, for the others see `fused_for`.
    """
    pairs = zip(outputs, key.seeded, strict=True)
    seeds = [leaf_of(NdArray.of_spec(y.spec)) if seeded else None for y, seeded in pairs]
    Switched(auto_forward=False, no_grad=False).from_now_on()
    leaves = [plan.leaves[i] for i in key.wanted]
    present = [seed for seed in seeds if seed is not None]

    def program_of(gradients: list[Variable]) -> Program:
        return _program(outputs, plan, gradients, present)[0]

    inside, retained_at = at(plan, key.inside), at(plan, key.retained)
    places = dict(zip(map(id, retained_at), key.retained, strict=True))
    inputs = [*leaves, *inside]
    if places:
        _, active, _ = path_between(outputs, inputs)
        inputs += [y for y in retained_at if id(y) not in active and places[id(y)] in met]
    graph = emitted(Request(
        outputs, inputs, seeds, retain=bool(places), retained_at=frozenset(places),
        recompute=recompute, runs_as=program_of,
    ))
    retained = {places[id(y)]: gy for y, gy in graph.retained}
    return GradientGraph(graph.gradients[: len(leaves)], present, retained)


def _program(
    outputs: list[Variable],
    plan: RunPlan,
    gradients: Sequence[Variable],
    seeds: Sequence[Variable],
) -> tuple[Program, list[Variable]]:
    """The program of a forward and its gradients, and its leaves other than the plan's and the seeds."""
    first = [*plan.leaves, *seeds]
    linear = linearize([*outputs, *plan.kept, *gradients], first=first, device=plan.program.device)
    results = linear.program.block.outputs
    end = len(outputs) + len(plan.kept)
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
    needing = {id(x) for x in (*[plan.leaves[i] for i in key.wanted], *at(plan, key.inside))}
    for f in functions_of(outputs):
        if not needing.isdisjoint(map(id, f.inputs)):
            living = [ref() for ref in f._outputs]
            needing |= {id(y) for y in living if y is not None and y._need_grad is not False}
    met = needing & reached_from(outputs, frozenset())
    return frozenset([(i, k) for i, f in enumerate(plan.functions) for k, y in enumerate(f._outputs) if id(y()) in met])
