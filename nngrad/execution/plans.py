"""How the graph above some Variables is run, and the arrays that it is run on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import jax

from ..graph import Function, NdArray, Variable, build_options, functions_of
from ..graph.exchange import groups_of, several_processes
from ..graph.function import watched
from ..graph.leaf import arrays_of
from ..graph.process import check_process
from ..graph.value import Deferred, hold_together, values_of
from .compiled import executable_of
from .lower import Program, linearize
from .units import any_watched


class Lookup:
    """The executable of a program, which is looked up when it runs first: a backward may come before that."""

    __slots__ = ("_executable", "_program")

    def __init__(self, program: Program) -> None:
        self._program = program
        self._executable: Callable[..., tuple[Any, ...]] | None = None

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """The results for arrays of the leaves."""
        executable = self._executable
        if executable is None:
            executable = self._executable = executable_of(self._program)
        return executable(*arrays)


class RunPlan:
    """How to run the graph above some outputs: made once for a graph, since graphs do not change.

    It is kept on the function at the root and does not refer to that one, so there is no cycle.
    """

    __slots__ = (
        "exchanged", "executable", "functions", "fused", "group", "kept", "leaf_ids", "leaves", "program", "updated",
    )  # fmt: skip

    def __init__(self, outputs: Sequence[Variable], functions: list[Function] | None = None) -> None:
        roots = {y.parent for y in outputs}
        functions = functions_of(outputs) if functions is None else functions
        self.functions = [f for f in functions if f not in roots]
        kept = [y for f in self.functions for ref in f._outputs for y in [ref()] if y is not None and y.persistent]
        for f in roots:
            if f is not None and f.op.reads == 0:  # it is there to have its inputs computed
                kept += [x for x in f.inputs if x.parent is not None]
        # No process can compute such a result again by itself, so each keeps it for whoever reads what depends on it.
        given = set(map(id, outputs))
        self.exchanged = [y for f in exchanging(functions) for y in f.outputs if id(y) not in given]
        kept += self.exchanged
        self.kept = list({id(y): y for y in kept}.values())
        linear = linearize([*outputs, *self.kept], device=device_of(outputs), functions=functions)
        self.program: Program = linear.program
        self.group = linear.program.group
        self.leaves = linear.leaves
        self.updated = linear.updated
        self.leaf_ids = tuple([id(x) for x in linear.leaves])
        self.executable = Lookup(linear.program)
        self.fused: dict[Any, Any] = {}


def exchanging(functions: Sequence[Function]) -> list[Function]:
    """Those of the functions that exchange arrays with other processes."""
    return [f for f in functions if groups_of(f.op, f.arguments)] if several_processes() else []


class Snapshot:
    """The arrays of a graph's leaves at one `forward()`, and the run that it put off; None if it was no forward."""

    __slots__ = ("array_of", "arrays", "leaf_ids", "leaves", "results", "run", "unasked")

    def __init__(self, plan: RunPlan, arrays: tuple[Any, ...], run: DeferredRun | None = None) -> None:
        self.leaf_ids = plan.leaf_ids
        self.leaves = plan.leaves
        self.arrays = arrays
        self.run = run
        self.array_of: dict[int, Any] | None = None
        """The arrays by the ids of the leaves, once a value in the middle was read."""
        self.unasked = 0
        """How many bytes of what was computed on the way to values that were read are kept."""
        self.results: MutableMapping[Function, tuple[Any, ...]] | None = None
        """The results of the functions, where they ran one by one."""

    def by_leaf(self) -> dict[int, Any]:
        """The arrays by the ids of the leaves."""
        return dict(zip(self.leaf_ids, self.arrays, strict=True))


class DeferredRun:
    """A run of an executable, put off until the first of its results is read."""

    __slots__ = ("_arrays", "_executable", "_waiting")

    def __init__(self, executable: Callable[..., Any], arrays: tuple[Any, ...], cells: Sequence[NdArray]) -> None:
        self._executable = executable
        self._arrays = arrays
        values = [Deferred(self) for _ in cells]
        self._waiting: list[weakref.ref[Deferred]] | None = [weakref.ref(value) for value in values]
        hold_together(cells, values)

    @property
    def done(self) -> bool:
        """Whether the results are there."""
        return self._waiting is None

    def run(self) -> None:
        """Compute the results."""
        if self._waiting is not None:
            check_process()
            self.keep(self._executable(*self._arrays))

    def keep(self, results: Sequence[Any]) -> None:
        """Hand the results, computed here or elsewhere, to the values that still wait for them."""
        for ref, result in zip(self._waiting or (), results, strict=False):
            value = ref()
            if value is not None:
                value.fill(result)
        self._waiting = None  # at the end: what an interrupt leaves waiting is computed again

    def keep_if_complete(self, cells: Sequence[NdArray], results: Sequence[Any]) -> None:
        """Hand over what was computed for `cells`, if nothing else waits."""
        known = dict(zip(map(id, values_of(cells)), results, strict=True))
        waiting = [ref() for ref in self._waiting or ()]
        if all([value is None or id(value) in known for value in waiting]):
            self.keep([known.get(id(value)) for value in waiting])


def plan_of(outputs: Sequence[Variable], functions: list[Function] | None = None) -> RunPlan:
    """The plan for `outputs`; that of a single function's single output is kept on the function.

    Args:
        outputs: What to compute.
        functions: All that they depend on, lowest rank first, where the caller has it already.
    """
    f = outputs[0].parent
    if len(outputs) != 1 or f is None or len(f.specs) != 1:
        return RunPlan(outputs, functions)
    plan: RunPlan | None = f.plan
    if plan is None or plan.program.mesh != build_options().running.mesh:
        plan = f.plan = RunPlan(outputs, functions)
    return plan


def present(outputs: Sequence[Variable]) -> Snapshot:
    """The leaves' present values, for what is no `forward()`: keys that were drawn are not drawn again, and
    nothing is deferred."""
    plan = plan_of(outputs)
    return Snapshot(plan, tuple(arrays_of(plan.leaves, draw=False, mesh=plan.program.mesh)))


def is_watched(outputs: Sequence[Variable]) -> bool:
    """Whether hooks or debug mode want to see the functions above `outputs` run."""
    return watched() and any_watched(functions_of(outputs))


def device_of(outputs: Sequence[Variable]) -> jax.Device | None:
    """The device of the Context that the outputs' functions were made in."""
    for y in outputs:
        if y.parent is not None and y.parent.context is not None:
            device: jax.Device | None = y.parent.context.device
            return device
    return None
