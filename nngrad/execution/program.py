"""The structure of a graph, without the graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from ..graph import Op, Spec
from ..graph.block import Step, run_steps
from ..graph.exchange import Processes, group_of, groups_of, several_processes
from ..graph.html import table, titled
from ..graph.mesh import Axes, Mesh, running_on
from ..graph.spec import arguments_need_x64
from ..graph.traverse import operands_first
from .host_calls import has_opaque


class Program(NamedTuple):
    """The structure of a graph, without the graph: equal structures are equal programs.

    Values are numbered: leaf i is i, and output k of the steps, counted through all of them, is ~k.
    """

    leaves: tuple[Spec, ...]
    """Shape and dtype of each leaf."""
    steps: tuple[Step, ...]
    """Op, static arguments, and the numbers of the inputs, in an order in which they can run."""
    outputs: tuple[int, ...]
    """Numbers of the results."""
    device: jax.Device | None
    """Where it runs; None leaves it to JAX."""
    rolls: bool = True
    """Whether recurrences in it that were unrolled may become loops (`rolling.py`)."""
    mesh: Mesh | None = None
    """The devices that it runs on; None for one."""
    places: tuple[Axes, ...] = ()
    """The axes of the mesh that each leaf is divided over."""
    uneven: tuple[int, ...] = ()
    """Numbers of the leaves that are batches which the mesh cannot divide evenly."""

    def __repr__(self) -> str:
        return f"<program: {len(self.leaves)} leaves, {len(self.steps)} functions, {len(self.outputs)} results>"

    def _repr_html_(self) -> str:
        counts = Counter([op.name for op, _, _ in self.steps])
        return titled(repr(self)[1:-1], table([(name, str(n)) for name, n in counts.most_common()],
                                              ("function", "times"), numbers=True))  # fmt: skip

    @property
    def needs_x64(self) -> bool:
        """Whether 64-bit values occur in it, by way of a leaf or of an argument."""
        leaves = any([s.needs_x64 for s in self.leaves])
        return leaves or any([arguments_need_x64(arguments) for _, arguments, _ in self.steps])

    def unread(self, leaves: Sequence[int]) -> list[int]:
        """Those of the leaves of these numbers on which no result depends."""
        read = {i for _, _, ins in self.steps for i in ins}.union(self.outputs)
        return [i for i in leaves if i not in read]

    @property
    def group(self) -> Processes | None:
        """The processes that functions in it exchange among; None where they exchange nothing, or there is but one.

        Raises:
            ValueError: There are several groups of them, or there is a mesh besides.
        """
        if not several_processes():
            return None
        group = group_of(frozenset().union(*[groups_of(op, arguments) for op, arguments, _ in self.steps]))
        if group is not None and self.mesh is not None:
            raise ValueError(
                f"the graph exchanges arrays among the processes {list(group)}, each of which has a graph of its own; "
                f"under {self.mesh!r} all have one graph: leave the exchange out, or run it outside of the mesh"
            )
        return group

    @property
    def opaque(self) -> bool:
        """Whether it holds code of the user's."""
        return any([has_opaque(arguments) for _, arguments, _ in self.steps])


class Call(NamedTuple):
    """A step, with the numbers of its outputs."""

    op: Op
    arguments: tuple[Any, ...]
    ins: tuple[int, ...]
    outs: tuple[int, ...]


def calls_of(program: Program) -> tuple[list[Call], dict[int, Spec]]:
    """The steps with the numbers of their outputs, and the specs of all values."""
    specs = dict(enumerate(program.leaves))
    calls, count = [], 0
    for op, arguments, ins in program.steps:
        made = op.result_specs(tuple([specs[i] for i in ins]), arguments)
        outs = tuple([~(count + k) for k in range(len(made))])
        count += len(made)
        specs.update(zip(outs, made, strict=True))
        calls.append(Call(op, arguments, ins, outs))
    return calls, specs


def without_passes(calls: Sequence[Call]) -> tuple[list[Call], dict[int, int]]:
    """The calls that compute something, and what stands for the values that the others pass on."""
    found: list[Call] = []
    passed: dict[int, int] = {}
    for op, arguments, ins, outs in calls:
        taken = tuple([passed.get(i, i) for i in ins])
        if op.passes:
            passed.update(zip(outs, taken, strict=False))
        else:
            found.append(Call(op, arguments, taken, outs))
    return found, passed


def renumbered(program: Program, calls: Sequence[Call], instead: Mapping[int, int]) -> Program:
    """`program` with other steps: `calls`, in an order in which they can run, however their values are numbered.

    Args:
        program: What they are for.
        calls: The steps.
        instead: For results that the program has under another number now: that number.
    """
    made = [i for call in calls for i in call.outs]
    numbers = {i: ~n for n, i in enumerate(made)} | {i: i for i in range(len(program.leaves))}
    steps = tuple([(c.op, c.arguments, tuple([numbers[i] for i in c.ins])) for c in calls])
    return program._replace(steps=steps, outputs=tuple([numbers[instead.get(i, i)] for i in program.outputs]))


def makers(calls: Sequence[Call]) -> dict[int, int]:
    """The places of the calls that make values."""
    return {i: n for n, call in enumerate(calls) for i in call.outs}


def late(calls: Sequence[Call], outputs: Sequence[int]) -> list[Call]:
    """Returns what `outputs` depend on, each call as late as its readers allow: depth first, the longest way first."""
    maker = makers(calls)
    depth: list[int] = []
    for call in calls:
        depth.append(1 + max([depth[maker[i]] for i in call.ins if i in maker], default=-1))

    def deepest_first(n: int) -> list[int]:
        return sorted({maker[i] for i in calls[n].ins if i in maker}, key=lambda m: (-depth[m], m))

    roots = sorted({maker[i] for i in outputs if i in maker}, key=lambda n: (depth[n], n))
    return [calls[n] for n in operands_first(roots, deepest_first)]


def in_one(program: Program) -> Callable[..., tuple[Any, ...]]:
    """The program as one function, just as it is."""

    def run(*arrays: Any) -> tuple[Any, ...]:
        if program.mesh is None:
            values = run_steps(program.steps, arrays)
        else:
            arrays = tuple(program.mesh.divided(arrays, program.uneven))
            with running_on(program.mesh):
                values = run_steps(program.steps, arrays)
        return tuple([arrays[i] if i >= 0 else values[~i] for i in program.outputs])

    return run
